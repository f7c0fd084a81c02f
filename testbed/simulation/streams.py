"""A device's stream on the virtual clock: what has come by any moment is known beforehand."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import numpy as np

from testbed.algorithms.base import Samples, Stream
from testbed.frame.record import Intake
from testbed.frame.worker import Shard
from testbed.streams import Arrivals, Buffer


@dataclass
class SimulatedStream:
    """The samples of one device, as they come, wait and are taken.

    Attributes:
        arrivals: when they come.
        buffer: what of them waits.
        source: the device's own training samples, of which sample k of the stream is the k-th.
        batch_size: of the scenario.
        patience: emulated seconds without a sample after which nobody waits for it any longer.
    """

    arrivals: Arrivals
    buffer: Buffer
    source: Shard
    batch_size: int
    patience: float = inf
    _waited: float = 0.0  # since the intake was last told
    _rate: float = 0.0  # measured when a step last looked
    _lag: float = 0.0  # of the oldest sample that was last taken
    _drawn: int = 0  # samples of the stream that have come out of the source

    def look(self, now: float) -> Stream:
        """What a worker half is told of it."""
        self._come(now)
        self._rate = self.arrivals.measured(now)
        own, waiting = len(self.source.samples), self.buffer.waiting
        return Stream(self.batch_size, own=own, rate=self._rate, buffered=waiting)

    def ready(self, count: int, now: float) -> float:
        """When a step that wants ``count`` samples has them, or gives up waiting for more."""
        self._come(now)
        wanted = self.buffer.first + count - 1
        if wanted <= self.buffer.last:
            return now
        silent = self.arrivals.silent_from(now, until=wanted, patience=self.patience)
        return min(silent, max(now, self.arrivals.moment(wanted)))

    def take(self, count: int, now: float, *, since: float) -> Samples:
        """The samples of a step that wanted them ``since`` then and was ``ready`` now.

        None if it has given up: what has come meanwhile waits for the next.
        """
        self._waited += now - since
        wanted = self.buffer.first + count - 1
        if wanted > self.buffer.last and self.arrivals.moment(wanted) > now:
            self._come(now)
            return np.empty(0, np.int64)
        last = max(wanted, self.arrivals.count(now))
        taken = self.buffer.take(count, last=last)
        self._lag = max(0.0, now - self.arrivals.made(taken.start))
        self.source.take(taken.start - 1 - self._drawn)  # those that were discarded before
        self._drawn = taken.stop - 1
        return self.source.take(count)

    def told(self) -> Intake:
        """What is to be said of it beside an update."""
        waited, self._waited = self._waited, 0.0
        buffer = self.buffer
        return Intake(
            *(waited, self._lag, self._rate, buffer.produced, buffer.used, buffer.waiting),
            stream_truncated=buffer.truncated,
            stream_duplicates=buffer.duplicates,
        )

    def _come(self, now: float) -> None:
        self.buffer.arrive(self.arrivals.count(now), rate=self.arrivals.measured(now))
