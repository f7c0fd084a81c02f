"""When a model is evaluated during training, and the reasons for which training ends."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import floor, isfinite

from testbed.algorithms.base import Measured
from testbed.values.units import Duration

ROUNDING = 1e-9
"""Tolerance, relative to an interval: a time this close below a multiple counts as reached."""

DIVERGED = "diverged"
NO_WORKER_LEFT = "no worker is left that could push"
NO_WORKER = "no worker"
NAMED = 3
"""The largest number of workers that a sentence lists by name."""


@dataclass(frozen=True)
class Target:
    """A value of a metric in an evaluation that is good enough.

    Attributes:
        metric: its name.
        value: the least value, or the greatest if a lower one is better.
        shown: what the reason calls it, if not by its name.
    """

    metric: str
    value: float
    higher_is_better: bool = True
    shown: str = ""

    def reached(self, value: float) -> bool:
        """Return whether a value is as good."""
        return value >= self.value if self.higher_is_better else value <= self.value


@dataclass(frozen=True)
class StopRule:
    """When training ends; a criterion that is None is not used.

    Attributes:
        steps: minimum number of training steps in the model.
        time: emulated seconds since the start.
        loss: maximum loss of an evaluation.
        targets: values of metrics, each of which is enough.
    """

    updates: int | None = None
    steps: int | None = None
    time: float | None = None
    loss: float | None = None
    targets: Sequence[Target] = ()

    def by_progress(self, updates: int, steps: int) -> str:
        """Return why these updates and steps are enough; empty if they are not."""
        if self.updates is not None and updates >= self.updates:
            return f"{updates} updates applied"
        if self.steps is not None and steps >= self.steps:
            return f"{steps} training steps are in the model"
        return ""

    def by_time(self, now: float) -> str:
        """Return why training has run long enough; empty if it has not."""
        if self.time is not None and now >= self.time:
            return f"{self.time:g} s of emulated time passed"
        return ""

    def by_evaluation(self, measured: Measured, metrics: Mapping[str, float | None]) -> str:
        """Return why the model is good enough or has diverged; empty if neither."""
        if not isfinite(measured.loss):
            return f"{DIVERGED}: loss is {measured.loss} at version {measured.version}"
        for target in self.targets:
            value = metrics.get(target.metric)
            if value is not None and target.reached(value):
                return f"{target.shown or target.metric} {value:.4f} reached {target.value:g}"
        if self.loss is not None and measured.loss <= self.loss:
            return f"loss {measured.loss:.4f} reached {self.loss:g}"
        return ""


def stall(waiting: int, awaited: Collection[int], *, silent: int) -> str:
    """Return why no worker can push: this many wait for ``awaited``, or are silent."""
    if waiting:
        verb = "worker waits" if waiting == 1 else "workers wait"
        return f"stalled: {waiting} {verb} for {_names(awaited)}"
    return f"stalled: {NO_WORKER_LEFT} ({silent} silent, the others have left)"


def silence_reason(seconds: float) -> str:
    """Return why a worker was removed that sent nothing for this many emulated seconds."""
    return f"nothing was received from it for {seconds:g} s"


def _names(workers: Collection[int]) -> str:
    """Join names such as ``w3``, ``w3 and w5``, ``w0, w1, w2 and 8 more``."""
    ordered = [f"w{worker}" for worker in sorted(workers)]
    if not ordered:
        return NO_WORKER
    if len(ordered) > NAMED + 1:
        ordered[NAMED:] = [f"{len(ordered) - NAMED} more"]
    *first, last = ordered
    return f"{', '.join(first)} and {last}" if first else last


@dataclass(frozen=True)
class Schedule:
    """A period in updates or in emulated seconds; the other is None."""

    updates: int | None
    seconds: float | None

    @classmethod
    def of(cls, every: int | Duration) -> Schedule:
        """Return the schedule of a scenario's ``every``, in updates or emulated seconds."""
        if isinstance(every, Duration):
            return cls(updates=None, seconds=float(every))
        return cls(updates=every, seconds=None)

    def passed(self, version: int, time: float) -> int:
        """Return the number of whole periods until then."""
        if self.seconds is not None:
            return floor(time / self.seconds + ROUNDING)
        assert self.updates is not None
        return version // self.updates

    def after(self, version: int, time: float) -> Due:
        """Return the next multiple after an evaluation; missed evaluations are skipped."""
        following = self.passed(version, time) + 1
        if self.seconds is not None:
            return Due(time=following * self.seconds)
        assert self.updates is not None
        return Due(version=following * self.updates)


@dataclass(frozen=True)
class Due:
    """When to evaluate next: once both this version and this time are reached."""

    version: int = 0
    time: float = 0.0
