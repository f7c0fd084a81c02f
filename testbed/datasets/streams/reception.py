"""A device's reception: checks and counts records, keeps samples until a step takes them. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from testbed.datasets.streams.arrivals import ROUNDING, WINDOW_SECONDS
from testbed.datasets.streams.buffers import Buffer
from testbed.datasets.streams.records import BadRecordError, RecordFormat, Sample


@dataclass
class RateMeter:
    """Meter of the rate, samples per second, from production times in the second up to the last.

    It measures what ``Arrivals.measured`` predicts.

    Attributes:
        announced: the rate to report before two samples have arrived.
    """

    announced: float
    _made: deque[float] = field(default_factory=deque)
    _samples: int = 0

    def begin(self) -> None:
        """Start the stream at time 0, with the next sample."""
        self._made.append(0.0)

    def add(self, made: float) -> None:
        """Add a sample that was produced at ``made``, emulated seconds."""
        self._samples += 1
        self._made.append(made)
        while len(self._made) > 2 and self._made[1] <= made - WINDOW_SECONDS + ROUNDING:
            self._made.popleft()

    @property
    def rate(self) -> float:
        """Number of intervals between samples, divided by their total length."""
        seconds = self._made[-1] - self._made[0] if self._samples > 1 else 0.0
        return (len(self._made) - 1) / seconds if seconds > 0 else self.announced


@dataclass
class Reception:
    """A device's buffer, with the samples in it.

    Attributes:
        format: the format of the records.
        buffer: the buffer that counts the samples.
        meter: the meter of their rate.
        removable: returns the last sample that the transport may have removed by an emulated time.
        newest: sequence number of the last sample that arrived, also at an earlier process of the
            device; 0 before the first.
        refused: number of invalid records.
        missing: number of samples of the stream that did not arrive, including refused ones.
        removed: how many of these the transport may have removed.
        heard: when the last sample arrived, in emulated time.
        latency: time from its production to its arrival.
    """

    format: RecordFormat
    buffer: Buffer
    meter: RateMeter
    removable: Callable[[float], int] = lambda now: 0
    newest: int = 0
    refused: int = 0
    missing: int = 0
    removed: int = 0
    heard: float = 0.0
    latency: float = 0.0
    _samples: deque[Sample] = field(default_factory=deque)
    _waiting: bool = False  # whether a step waits: it gets all arrivals, whatever the policy

    def receive(self, data: bytes, now: float) -> None:
        """Receive a record. Invalid records and repeated samples are only counted."""
        try:
            samples = self.format.decode(data)
        except BadRecordError:
            self.refused += 1
            return
        for sample in samples:
            self._keep(sample, now)
        if not self._waiting:
            self._settle()

    def _keep(self, sample: Sample, now: float) -> None:
        if sample.sequence <= self.newest:
            self.buffer.repeat()
            return
        if (skipped := sample.sequence - self.newest - 1) > 0:
            self.missing += skipped
            self.removed += min(skipped, max(0, self.removable(now) - self.newest))
        self.newest, self.heard = sample.sequence, now
        self.latency = max(0.0, now - sample.made)
        if sample.sequence == 1:
            self.meter.begin()
        self.meter.add(sample.made)
        self._samples.append(sample)

    def lacking(self, count: int) -> int:
        """Return how many of ``count`` samples have not arrived."""
        return max(0, count - len(self._samples))

    def wait(self) -> None:
        """Start a step's wait, which lasts until it takes samples or gives up."""
        self._waiting = True

    def give_up(self) -> None:
        """End a step's wait; samples that have arrived are for the next step."""
        self._waiting = False
        self._settle()

    def take(self, count: int) -> Sequence[Sample]:
        """Take the ``count`` oldest samples for a step.

        Raises:
            ValueError: fewer samples are available.
        """
        self._waiting = False
        self.buffer.take(count, last=self._last)
        taken = [self._samples.popleft() for _ in range(count)]
        self._discard()
        return taken

    @property
    def _last(self) -> int:
        """Number of the newest sample, in the buffer's numbering."""
        return self.buffer.first + len(self._samples) - 1

    def _settle(self) -> None:
        self.buffer.arrive(self._last, rate=self.meter.rate)
        self._discard()

    def _discard(self) -> None:
        """Drop the samples that the buffer's policy discarded: always the oldest."""
        while len(self._samples) > self.buffer.waiting:
            self._samples.popleft()
