"""Where a run stands: what the command line shows while it goes on."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import numpy as np

from testbed.events.rows import Rows

WINDOW_SECONDS = 10.0


@dataclass(frozen=True)
class Status:
    """A glance at a run."""

    updates: int = 0  # applied so far
    updates_per_second: float = 0.0  # over the last ten seconds, real time
    accuracy: float | None = None  # top-1 share of the last evaluation, or None before the first
    ingress_bytes: int = 0  # payload of all pushes so far
    staleness: float = 0.0  # mean i - j over the last ten seconds
    # real seconds to the end as far as the stop rule lets one say, else None
    eta_seconds: float | None = None
    done_ratio: float | None = None  # how far along the run is, in [0, 1], else None


@dataclass
class Progress:
    """Adds up what the parameter server reports into a Status."""

    stop_updates: int | None  # updates after which the run ends, or None
    stop_seconds: float | None  # emulated seconds after which it ends, or None
    _updates: int = 0
    _ingress: int = 0
    _accuracy: float | None = None
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
            ingress_bytes=self._ingress,
            staleness=sum(total for _, _, total in counted) / max(1, updates),
            eta_seconds=eta,
            done_ratio=done,
        )

    def _progress(
        self, elapsed: float, emulated: float, rate: float
    ) -> tuple[float | None, float | None]:
        """How far along, and how much longer, by whichever rule ends the run first."""
        shares: list[float] = []
        seconds_to_go: list[float] = []
        if self.stop_updates is not None:
            shares.append(self._updates / self.stop_updates)
            if rate > 0:
                seconds_to_go.append(max(0, self.stop_updates - self._updates) / rate)
        if self.stop_seconds is not None:
            shares.append(share := min(1.0, emulated / self.stop_seconds))
            if share > 0:
                seconds_to_go.append(elapsed * (1 - share) / share)
        return max(shares, default=None), min(seconds_to_go, default=None)
