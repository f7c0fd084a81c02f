"""Totals of the samples of data streams, by class, in arrays: they stay fast for many rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from testbed.reports.metrics import declared
from testbed.reports.metrics.metric import Sample
from testbed.telemetry.rows import Rows

COUNTED = {
    declared.STREAM_PRODUCED: "stream_produced",
    declared.STREAM_USED: "stream_used",
    declared.STREAM_TRUNCATED: "stream_truncated",
    declared.STREAM_DUPLICATES: "stream_duplicates",
    declared.STREAM_BUFFERED: "stream_buffered",
}
"""Columns that are running totals or current values: a worker's last row is enough."""

LATEST = {
    declared.STREAM_RATE: "stream_rate",
    declared.STREAM_LAG: "stream_lag_seconds",
}
"""Columns shown as the mean over the workers' last updates."""


class StreamTotals:
    """The last update of every worker, and sums over all updates in the model.

    Args:
        classes: device class of every worker, by index.
    """

    def __init__(self, classes: Sequence[str]) -> None:
        self._members = {
            name: np.array([one == name for one in classes]) for name in dict.fromkeys(classes)
        }
        self._workers = len(classes)
        self.clear()

    def clear(self) -> None:
        """Discard all updates."""
        columns = (*COUNTED.values(), *LATEST.values(), "batch")
        self._last = {column: np.zeros(self._workers) for column in columns}
        self.waited = np.zeros(self._workers)
        self._seen = np.zeros(self._workers, dtype=bool)

    def add(self, rows: Rows) -> None:
        """Count new updates."""
        worker = rows["worker"]
        for column in (*COUNTED.values(), *LATEST.values()):
            self._last[column][worker] = rows[column]  # the last of several rows is kept
        self._last["batch"][worker] = rows["samples"] - rows["injected"]
        np.add.at(self.waited, worker, rows["stream_wait_seconds"])
        self._seen[worker] = True

    def samples(self) -> Iterator[Sample]:
        """Yield the current samples."""
        for name, members in self._members.items():
            for metric, column in COUNTED.items():
                yield Sample(metric, int(self._last[column][members].sum()), (name,))
            yield Sample(declared.STREAM_WAIT, float(self.waited[members].sum()), (name,))
            seen = members & self._seen
            if seen.any():
                for metric, column in (*LATEST.items(), (declared.STREAM_BATCH, "batch")):
                    yield Sample(metric, float(self._last[column][seen].mean()), (name,))
