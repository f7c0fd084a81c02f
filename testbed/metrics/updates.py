"""What is counted of the updates, by worker and by class: arrays, so that many rows cost little."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from testbed.events.rows import Rows
from testbed.metrics import declared
from testbed.metrics.declared import BUCKETS
from testbed.metrics.metric import Metric
from testbed.metrics.samples import Sample, histogram
from testbed.metrics.streams import StreamTotals

ACTIVITIES = ("compute", "think", "transfer", "blocked")
DIRECTIONS = {"up": "payload_up_bytes", "down": "payload_down_bytes"}


class UpdateTotals:
    """Sums over the updates in the model.

    Args:
        classes: of every worker, by index.
        paced: classes that have a speed, whose steps can be late.
        streams: whether samples come as data streams.
    """

    def __init__(
        self, classes: Sequence[str], paced: Collection[str], *, streams: bool = False
    ) -> None:
        self._names = tuple(dict.fromkeys(classes))
        places = {name: place for place, name in enumerate(self._names)}
        self._class = np.array([places[name] for name in classes], dtype=np.int64)
        self._classes = tuple(classes)
        self._paced = np.array([name in paced for name in classes], dtype=bool)
        self._streams = StreamTotals(classes) if streams else None
        self._activities = (*ACTIVITIES, "stream_wait") if streams else ACTIVITIES
        self.clear()

    def clear(self) -> None:
        """Forget all updates."""
        workers, classes = len(self._classes), len(self._names)
        self.version = 0
        self._updates = np.zeros(workers, np.int64)
        self._late = np.zeros(workers, np.int64)
        self._payload = np.zeros((len(DIRECTIONS), workers), np.int64)
        self._seconds = np.zeros((len(self._activities), workers))
        self._last = np.zeros(workers)  # emulated
        self._staleness = np.zeros(classes, np.int64)
        self._buckets = np.zeros((classes, len(BUCKETS) + 1), np.int64)
        if self._streams is not None:
            self._streams.clear()

    @property
    def total(self) -> int:
        """All updates."""
        return int(self._updates.sum())

    @property
    def late_ratio(self) -> float | None:
        """Share of the updates of paced classes that were late; None without any."""
        paced = int(self._updates[self._paced].sum())
        return int(self._late.sum()) / paced if paced else None

    def payload(self, direction: str) -> int:
        """Payload bytes of all updates that way."""
        return int(self._payload[tuple(DIRECTIONS).index(direction)].sum())

    def add(self, rows: Rows) -> None:
        """Count new updates."""
        if not len(rows):
            return
        worker = rows["worker"]
        self.version = int(rows["version_applied"][-1]) + 1
        np.add.at(self._updates, worker, 1)
        np.add.at(self._late, worker, (rows["late_seconds"] > 0) & self._paced[worker])
        for place, column in enumerate(DIRECTIONS.values()):
            np.add.at(self._payload[place], worker, rows[column])
        for place, activity in enumerate(self._activities):
            np.add.at(self._seconds[place], worker, rows[f"{activity}_seconds"])
        np.maximum.at(self._last, worker, rows["time_seconds"])
        kind, staleness = self._class[worker], rows["staleness"]
        np.add.at(self._staleness, kind, staleness)
        np.add.at(self._buckets, (kind, np.searchsorted(BUCKETS, staleness)), 1)
        if self._streams is not None:
            self._streams.add(rows)

    def samples(self, now: float, *, per_worker: bool) -> Iterator[Sample]:
        """What is known at ``now`` emulated seconds."""
        yield Sample(declared.VERSION, self.version)
        yield from self._by_class()
        if self._streams is not None:
            yield from self._streams.samples()
        if per_worker:
            yield from self._by_worker(now)

    def _by_class(self) -> Iterator[Sample]:
        sums = {metric: self._summed(of) for metric, of in self._counted().items()}
        payload = {way: self._summed(of) for way, of in zip(DIRECTIONS, self._payload, strict=True)}
        for place, name in enumerate(self._names):
            for metric, values in sums.items():
                yield Sample(metric, int(values[place]), (name,))
            for way, values in payload.items():
                yield Sample(declared.PAYLOAD, int(values[place]), (way, name))
            total = int(self._staleness[place])
            yield from histogram(declared.STALENESS, self._buckets[place], total, (name,))

    def _counted(self) -> dict[Metric, NDArray[np.int64]]:
        return {declared.UPDATES: self._updates, declared.LATE_STEPS: self._late}

    def _summed(self, by_worker: NDArray[np.int64]) -> NDArray[np.int64]:
        summed = np.zeros(len(self._names), np.int64)
        np.add.at(summed, self._class, by_worker)
        return summed

    def _by_worker(self, now: float) -> Iterator[Sample]:
        for worker, name in enumerate(self._classes):
            labels = (f"w{worker}", name)
            yield Sample(declared.WORKER_UPDATES, int(self._updates[worker]), labels)
            yield Sample(declared.PUSH_AGE, max(0.0, now - float(self._last[worker])), labels)
            for place, activity in enumerate(self._activities):
                seconds = float(self._seconds[place, worker])
                yield Sample(declared.CYCLE, seconds, (*labels, activity))
