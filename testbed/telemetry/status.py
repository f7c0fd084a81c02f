"""Where a run stands: what the command line shows while it goes on."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import numpy as np

from testbed.events.rows import Rows

WINDOW_SECONDS = 10.0


@dataclass(frozen=True)
class Status:
    """A glance at a run.

    Attributes:
        updates: applied so far.
        updates_per_second: over the last ten seconds, real time.
        accuracy: top-1 share of the last evaluation, or None before the first.
        best_accuracy: the best so far.
        ingress_bytes: payload of all pushes so far.
        staleness: mean i - j over the last ten seconds.
        elapsed_seconds: real seconds since the training started.
        eta_seconds: real seconds to the end as far as the stop rule lets one say, else None.
        done_ratio: how far along the run is, in [0, 1], else None.
    """

    updates: int = 0
    updates_per_second: float = 0.0
    accuracy: float | None = None
    best_accuracy: float | None = None
    ingress_bytes: int = 0
    staleness: float = 0.0
    elapsed_seconds: float = 0.0
    eta_seconds: float | None = None
    done_ratio: float | None = None


@dataclass
class Progress:
    """Adds up what the parameter server reports into a Status.

    Attributes:
        stop_updates: updates after which the run ends, or None.
        stop_seconds: emulated seconds after which it ends, or None.
    """

    stop_updates: int | None
    stop_seconds: float | None
    _updates: int = 0
    _ingress: int = 0
    _accuracy: float | None = None
    _best: float | None = None
    _recent: deque[tuple[float, int, float]] = field(default_factory=deque)  # when, updates, sum

    def add_updates(self, rows: Rows, elapsed: float) -> None:
        """New rows of the update record, seen ``elapsed`` real seconds after the start."""
        self._updates += len(rows)
        self._ingress += int(rows["payload_up_bytes"].sum())
        self._recent.append((elapsed, len(rows), float(np.sum(rows["staleness"]))))
        while len(self._recent) > 1 and self._recent[0][0] < elapsed - WINDOW_SECONDS:
            self._recent.popleft()

    def add_evaluation(self, top1: float) -> None:
        """An evaluation that the evaluator reported."""
        self._accuracy = top1
        self._best = top1 if self._best is None else max(self._best, top1)

    def status(self, elapsed: float, *, emulated: float) -> Status:
        """Where the run stands, so many real and emulated seconds after the start."""
        since, *counted = self._recent or [(0.0, 0, 0.0)]
        updates = sum(count for _, count, _ in counted)
        span = elapsed - since[0]
        rate = updates / span if span > 0 else 0.0
        done, eta = self._progress(elapsed, emulated, rate)
        return Status(
            updates=self._updates,
            updates_per_second=rate,
            accuracy=self._accuracy,
            best_accuracy=self._best,
            ingress_bytes=self._ingress,
            staleness=sum(total for _, _, total in counted) / max(1, updates),
            elapsed_seconds=elapsed,
            eta_seconds=eta,
            done_ratio=done,
        )

    def _progress(
        self, elapsed: float, emulated: float, rate: float
    ) -> tuple[float | None, float | None]:
        """How far along, and how much longer, by whichever rule ends the run first."""
        ways: list[tuple[float | None, float]] = []  # (seconds to go, share done)
        if self.stop_updates is not None:
            missing = max(0, self.stop_updates - self._updates)
            ways.append((missing / rate if rate > 0 else None, self._updates / self.stop_updates))
        if self.stop_seconds is not None:
            share = min(1.0, emulated / self.stop_seconds)
            ways.append((elapsed * (1 - share) / share if share > 0 else None, share))
        known = [seconds for seconds, _ in ways if seconds is not None]
        return (
            max((share for _, share in ways), default=None),
            min(known, default=None),
        )
