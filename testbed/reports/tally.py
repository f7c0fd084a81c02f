"""Running totals of a run's updates by worker, for an active or an ended run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from testbed.telemetry.rows import Rows

WINDOW_SECONDS = 10.0
"""Emulated; the time that current rates refer to."""

TIMES = ("compute_seconds", "think_seconds", "transfer_seconds", "blocked_seconds")

PAYLOAD = {"up": "payload_up_bytes", "down": "payload_down_bytes"}


class Tally:
    """Running totals of updates by worker."""

    def __init__(self, count: int) -> None:
        self.updates, self.late, self.staleness_sum = np.zeros((3, count), np.int64)
        self.staleness = np.zeros(count, np.int64)
        self.first, self.last = np.zeros((2, count))
        self.previous = np.full(count, -np.inf)  # time of the update before the last
        self.seconds = np.zeros((count, len(TIMES)))
        self.recent = np.zeros(0), np.zeros(0, np.int64)  # times and workers
        self.payload = {way: np.zeros(count, np.int64) for way in PAYLOAD}

    def add(self, rows: Rows) -> None:
        """Add rows, in their order."""
        rows = rows[rows["worker"] < len(self.updates)]
        worker, time = rows["worker"], rows["time_seconds"]
        fresh, at = np.unique(worker, return_index=True)
        new = self.updates[fresh] == 0
        self.first[fresh[new]] = time[at[new]]
        self._pass_on(worker, time)
        self.last[worker] = time  # of several rows of a worker, the last is kept
        self.staleness[worker] = rows["staleness"]
        np.add.at(self.updates, worker, 1)
        np.add.at(self.staleness_sum, worker, rows["staleness"])
        np.add.at(self.late, worker, rows["late_seconds"] > 0)
        np.add.at(self.seconds, worker, np.stack([rows[name] for name in TIMES], axis=1))
        for way, column in PAYLOAD.items():
            np.add.at(self.payload[way], worker, rows[column])
        times, workers = (
            np.append(*both) for both in zip(self.recent, (time, worker), strict=True)
        )
        kept = times > times.max(initial=0.0) - WINDOW_SECONDS
        self.recent = times[kept], workers[kept]

    def pace(self, time: float, workers: Sequence[int]) -> float:
        """Return the current updates per emulated second of some workers.

        The rate is measured between rounds, so that an unfinished round does not lower it unless
        it is already longer than any before.
        """
        moments, counts = self._moments(workers, time - WINDOW_SECONDS)
        if len(moments) < 2:
            return 0.0
        late = max(0.0, time - float(moments[-1]) - float(np.diff(moments).max()))
        return int(counts[1:].sum()) / (float(moments[-1] - moments[0]) + late)

    def _pass_on(self, worker: NDArray[Any], time: NDArray[Any]) -> None:
        """Store each worker's last update as its previous one."""
        order = np.argsort(worker, kind="stable")
        of, at = worker[order], time[order]
        (ends,) = np.nonzero(np.append(of[1:] != of[:-1], True)[: len(of)])
        several = (ends > 0) & (of[ends - 1] == of[ends])
        before = np.where(self.updates[of[ends]] > 0, self.last[of[ends]], -np.inf)
        self.previous[of[ends]] = np.where(several, at[ends - 1], before)

    def _moments(self, members: Sequence[int], since: float) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return when updates of some workers were applied, and how many at each time.

        Only times after ``since``; if these are one round or less, the last two rounds.
        """
        times, workers = self.recent
        found = times[(times > since) & np.isin(workers, members)]
        if len(np.unique(found)) < 2:
            known = np.append(self.last[members][self.updates[members] > 0], self.previous[members])
            latest = np.unique(known[np.isfinite(known)])[-2:]
            found = known[np.isin(known, latest)]
        return np.unique(found, return_counts=True)
