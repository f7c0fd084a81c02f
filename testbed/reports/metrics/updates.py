"""Totals of updates and streams, by worker and class, in arrays: they stay fast for many rows."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import numpy as np

from testbed.reports.history import TIMES, Tally
from testbed.reports.metrics import declared
from testbed.reports.metrics.declared import BUCKETS, Sample
from testbed.reports.streams import RUNNING, restarted
from testbed.telemetry.rows import STREAMED, UPDATE, Rows

ENDS = (*(f"{bound:.1f}" for bound in BUCKETS), "+Inf")
"""The label ``le`` of each staleness bucket."""

ACTIVITIES = tuple(name.removesuffix("_seconds") for name in TIMES)

COUNTED = {
    declared.STREAM_PRODUCED: "stream_produced",
    declared.STREAM_USED: "stream_used",
    declared.STREAM_TRUNCATED: "stream_truncated",
    declared.STREAM_DUPLICATES: "stream_duplicates",
    declared.STREAM_BUFFERED: "stream_buffered",
}
"""Columns that are running totals of a device's process or current values: a process's last row
is enough."""

LATEST = {
    declared.STREAM_RATE: "stream_rate",
    declared.STREAM_LAG: "stream_lag_seconds",
}
"""Columns shown as the mean over the workers' last updates."""


class UpdateTotals:
    """Sums over the updates in the model; ``paced``: classes with a speed."""

    def __init__(
        self, classes: Sequence[str], paced: Collection[str], *, streams: bool = False
    ) -> None:
        self._names = tuple(dict.fromkeys(classes))
        places = {name: place for place, name in enumerate(self._names)}
        self._class = np.array([places[name] for name in classes], dtype=np.int64)
        self._classes = tuple(classes)
        self._paced = np.array([name in paced for name in classes], dtype=bool)
        self._streams = streams
        self.clear()

    def clear(self) -> None:
        """Discard all updates."""
        self.version = 0
        self.tally = Tally(len(self._classes), STREAMED if self._streams else UPDATE)
        self._waited = np.zeros(len(self._classes))  # for samples
        self._ended = {column: np.zeros(len(self._classes), np.int64) for column in RUNNING}
        self._buckets = np.zeros((len(self._names), len(BUCKETS) + 1), np.int64)

    @property
    def total(self) -> int:
        """Number of all updates."""
        return int(self.tally.updates.sum())

    @property
    def late_ratio(self) -> float | None:
        """Fraction of late updates among those of classes with a speed; None if there are none."""
        paced = int(self.tally.updates[self._paced].sum())
        return int(self.tally.late[self._paced].sum()) / paced if paced else None

    def payload(self, direction: str) -> int:
        """Return the payload bytes of all updates; ``direction`` is up or down."""
        return int(self.tally.payload[direction].sum())

    def add(self, rows: Rows) -> None:
        """Count new updates."""
        if not len(rows):
            return
        self.version = int(rows["version_applied"][-1]) + 1
        if self._streams:
            self._end_processes(rows)
        self.tally.add(rows)
        at = (self._class[rows["worker"]], np.searchsorted(BUCKETS, rows["staleness"]))
        np.add.at(self._buckets, at, 1)
        if self._streams:
            np.add.at(self._waited, rows["worker"], rows["stream_wait_seconds"])

    def _end_processes(self, rows: Rows) -> None:
        """Keep the running totals of processes that ended: a device's next one counts from 0."""
        rows = rows[np.argsort(rows["worker"], kind="stable")]
        worker, before = rows["worker"], np.roll(rows, 1)
        first = np.append(True, worker[1:] != worker[:-1])
        before[first] = self.tally.latest[worker[first]]
        new = restarted(rows, before)
        for column, totals in self._ended.items():
            np.add.at(totals, worker[new], before[column][new])

    def samples(self, now: float, *, per_worker: bool) -> Iterator[Sample]:
        """Yield the values of the metrics at ``now`` emulated seconds."""
        yield Sample(declared.VERSION, self.version)
        yield from self._by_class()
        if self._streams:
            yield from self._of_streams()
        if per_worker:
            yield from self._by_worker(now)

    def _by_class(self) -> Iterator[Sample]:
        tally = self.tally
        for place, name in enumerate(self._names):
            of = self._class == place
            yield Sample(declared.UPDATES, int(tally.updates[of].sum()), (name,))
            yield Sample(declared.LATE_STEPS, int(tally.late[of & self._paced].sum()), (name,))
            for way, payload in tally.payload.items():
                yield Sample(declared.PAYLOAD, int(payload[of].sum()), (way, name))
            total = int(tally.staleness_sum[of].sum())
            counts = self._buckets[place].cumsum().tolist()
            buckets = tuple(zip(ENDS, counts, strict=True))
            yield Sample(declared.STALENESS, total, (name,), buckets)

    def _of_streams(self) -> Iterator[Sample]:
        latest = self.tally.latest
        means = {metric: latest[column] for metric, column in LATEST.items()}
        means[declared.STREAM_BATCH] = latest["samples"] - latest["injected"]
        for place, name in enumerate(self._names):
            of = self._class == place
            for metric, column in COUNTED.items():
                counted = latest[column][of].sum()
                if column in self._ended:
                    counted += self._ended[column][of].sum()
                yield Sample(metric, int(counted), (name,))
            yield Sample(declared.STREAM_WAIT, float(self._waited[of].sum()), (name,))
            seen = of & (self.tally.updates > 0)
            for metric, values in means.items() if seen.any() else ():
                yield Sample(metric, float(values[seen].mean(dtype=np.float64)), (name,))

    def _by_worker(self, now: float) -> Iterator[Sample]:
        tally = self.tally
        seconds = {activity: tally.seconds[:, at] for at, activity in enumerate(ACTIVITIES)}
        if self._streams:
            seconds["stream_wait"] = self._waited
        for worker, name in enumerate(self._classes):
            labels = (f"w{worker}", name)
            yield Sample(declared.WORKER_UPDATES, int(tally.updates[worker]), labels)
            yield Sample(declared.PUSH_AGE, max(0.0, now - float(tally.last[worker])), labels)
            for activity, of in seconds.items():
                yield Sample(declared.CYCLE, float(of[worker]), (*labels, activity))
