"""A device's stream on the virtual clock: all arrival times are known in advance."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf

import numpy as np

from testbed.algorithms.base import Samples, Stream
from testbed.algorithms.frame.record import Intake
from testbed.algorithms.frame.worker import Shard
from testbed.datasets.streams import Arrivals, Buffer


@dataclass
class SimulatedStream:
    """The sample stream of one device: arrivals, buffer and consumption.

    Attributes:
        arrivals: the arrival times.
        buffer: the waiting samples.
        source: the device's own training samples; sample k of the stream is the k-th of them.
        batch_size: the scenario's batch size.
        patience: emulated seconds without a sample after which the stream counts as silent.
    """

    arrivals: Arrivals
    buffer: Buffer
    source: Shard
    batch_size: int
    patience: float = inf
    _waited: float = 0.0  # since the intake was last reported
    _rate: float = 0.0  # measured when a step last looked
    _lag: float = 0.0  # of the oldest sample in the last batch
    _drawn: int = 0  # samples drawn from the source so far

    def restart(self, now: float, source: Shard) -> None:
        """Lose what arrived by ``now`` with the device's process; the next one counts from 0.

        ``source`` is as at the beginning: the process may have been computed beyond ``now``.
        """
        arrived = self.arrivals.count(now)
        first = arrived + 1
        self.buffer = replace(
            self.buffer, produced=0, used=0, truncated=0, duplicates=0, first=first, last=arrived
        )
        self.source, self._drawn, self._waited = source, 0, 0.0

    def look(self, now: float) -> Stream:
        """Return the state of the stream for the worker half."""
        self._receive(now)
        self._rate = self.arrivals.measured(now)
        own, waiting = len(self.source.samples), self.buffer.waiting
        return Stream(self.batch_size, own=own, rate=self._rate, buffered=waiting)

    def ready(self, count: int, now: float) -> float:
        """Return the time when a step has ``count`` samples, or stops waiting for more."""
        self._receive(now)
        wanted = self.buffer.first + count - 1
        if wanted <= self.buffer.last:
            return now
        silent = self.arrivals.silent_from(now, until=wanted, patience=self.patience)
        return min(silent, max(now, self.arrivals.moment(wanted)))

    def take(self, count: int, now: float, *, since: float) -> Samples:
        """Return the samples of a step that waited ``since`` then and is ``ready`` now.

        Empty if it gave up: the samples that have arrived wait for the next step.
        """
        self._waited += now - since
        wanted = self.buffer.first + count - 1
        if wanted > self.buffer.last and self.arrivals.moment(wanted) > now:
            self._receive(now)
            return np.empty(0, np.int64)
        last = max(wanted, self.arrivals.count(now))
        taken = self.buffer.take(count, last=last)
        self._lag = max(0.0, now - self.arrivals.made(taken.start))
        self.source.take(taken.start - 1 - self._drawn)  # those that were discarded before
        self._drawn = taken.stop - 1
        return self.source.take(count)

    def take_intake(self) -> Intake:
        """Return the intake to record with an update."""
        waited, self._waited = self._waited, 0.0
        buffer = self.buffer
        return Intake(
            *(waited, self._lag, self._rate, buffer.produced, buffer.used, buffer.waiting),
            stream_truncated=buffer.truncated,
            stream_duplicates=buffer.duplicates,
        )

    def _receive(self, now: float) -> None:
        self.buffer.arrive(self.arrivals.count(now), rate=self.arrivals.measured(now))
