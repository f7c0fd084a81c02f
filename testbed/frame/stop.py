"""Why a training ends."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from math import isfinite

from testbed.algorithms.base import Measured

DIVERGED = "diverged"
NOBODY_LEFT = "nobody is left who could push"
NAMED = 3
"""So many workers are named one by one in a sentence."""


@dataclass(frozen=True)
class StopRule:
    """When training ends; what is None does not end it.

    Attributes:
        steps: at least so many training steps are in the model.
        time: emulated seconds since the start.
        accuracy: top-1 share of a measured evaluation, in [0, 1].
        loss: a measured evaluation's loss is at most that.
    """

    updates: int | None = None
    steps: int | None = None
    time: float | None = None
    accuracy: float | None = None
    loss: float | None = None

    def by_progress(self, updates: int, steps: int) -> str:
        """Why so many updates and steps are enough; empty if they are not."""
        if self.updates is not None and updates >= self.updates:
            return f"{updates} updates applied"
        if self.steps is not None and steps >= self.steps:
            return f"{steps} training steps are in the model"
        return ""

    def by_time(self, now: float) -> str:
        """Why it has lasted long enough; empty if it has not."""
        if self.time is not None and now >= self.time:
            return f"{self.time:g} s of emulated time passed"
        return ""

    def by_evaluation(self, measured: Measured, accuracy: float | None) -> str:
        """Why the model is good enough, or beyond hope; empty if it is neither.

        There is no accuracy where targets are numbers.
        """
        if not isfinite(measured.loss):
            return f"{DIVERGED}: loss is {measured.loss} at version {measured.version}"
        if self.accuracy is not None and accuracy is not None and accuracy >= self.accuracy:
            return f"accuracy {accuracy:.4f} reached {self.accuracy:g}"
        if self.loss is not None and measured.loss <= self.loss:
            return f"loss {measured.loss:.4f} reached {self.loss:g}"
        return ""


def stall(waiting: int, awaited: Collection[int], *, silent: int) -> str:
    """Why nobody can push: so many workers wait for ``awaited``, or are silent."""
    if waiting:
        verb = "worker waits" if waiting == 1 else "workers wait"
        return f"stalled: {waiting} {verb} for {_names(awaited)}"
    return f"stalled: {NOBODY_LEFT} ({silent} silent, the others have left)"


def unheard(seconds: float) -> str:
    """Why a worker was removed of which nothing came for so long, emulated."""
    return f"nothing was heard of it for {seconds:g} s"


def _names(workers: Collection[int]) -> str:
    """Such as ``w3``, ``w3 and w5``, ``w0, w1, w2 and 8 more``."""
    ordered = [f"w{worker}" for worker in sorted(workers)]
    if not ordered:
        return "nobody"
    if len(ordered) > NAMED + 1:
        ordered[NAMED:] = [f"{len(ordered) - NAMED} more"]
    *first, last = ordered
    return f"{', '.join(first)} and {last}" if first else last
