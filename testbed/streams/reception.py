"""What a device makes of the records that come to it: checked, counted, kept until a step takes
them. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from testbed.streams.arrivals import ROUNDING, WINDOW_SECONDS
from testbed.streams.buffers import Buffer
from testbed.streams.records import BadRecordError, RecordFormat, Sample


@dataclass
class RateMeter:
    """Samples a second, by when the stream made those of the second up to the last.

    It measures what ``Arrivals.measured`` says beforehand.

    Attributes:
        announced: what is told until two samples have come.
    """

    announced: float
    _made: deque[float] = field(default_factory=deque)
    _samples: int = 0

    def begin(self) -> None:
        """The stream begins with the sample that comes next, at time 0."""
        self._made.append(0.0)

    def add(self, made: float) -> None:
        """A sample has come that was made then, emulated seconds."""
        self._samples += 1
        self._made.append(made)
        while len(self._made) > 2 and self._made[1] <= made - WINDOW_SECONDS + ROUNDING:
            self._made.popleft()

    @property
    def rate(self) -> float:
        """Intervals between samples over their length."""
        seconds = self._made[-1] - self._made[0] if self._samples > 1 else 0.0
        return (len(self._made) - 1) / seconds if seconds > 0 else self.announced


@dataclass
class Reception:
    """A device's buffer, with the samples in it.

    Attributes:
        format: of the records.
        buffer: counts them.
        meter: of their rate.
        newest: sequence number of the last sample that came; 0 before the first.
        refused: records that were no samples.
        missing: samples of the stream that were passed over, the refused ones among them.
        heard: when the last one came, emulated.
        latency: how long after it was made.
    """

    format: RecordFormat
    buffer: Buffer
    meter: RateMeter
    newest: int = 0
    refused: int = 0
    missing: int = 0
    heard: float = 0.0
    latency: float = 0.0
    _samples: deque[Sample] = field(default_factory=deque)
    _waiting: bool = False  # whether a step waits: what comes goes to it, whatever the policy

    def receive(self, data: bytes, now: float) -> None:
        """A record has come. What is none is counted, and so are samples that had come before."""
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
        if self.newest:  # a device that was started again begins amid its stream
            self.missing += sample.sequence - self.newest - 1
        self.newest, self.heard = sample.sequence, now
        self.latency = max(0.0, now - sample.made)
        if sample.sequence == 1:
            self.meter.begin()
        self.meter.add(sample.made)
        self._samples.append(sample)

    def lacking(self, count: int) -> int:
        """How many of ``count`` samples have not come."""
        return max(0, count - len(self._samples))

    def wait(self) -> None:
        """A step waits for samples from now on, until it takes them or gives up."""
        self._waiting = True

    def give_up(self) -> None:
        """It does not wait any more: what has come meanwhile is for the next."""
        self._waiting = False
        self._settle()

    def take(self, count: int) -> Sequence[Sample]:
        """A step takes the ``count`` oldest.

        Raises:
            ValueError: there are fewer.
        """
        self._waiting = False
        self.buffer.take(count, last=self._last)
        taken = [self._samples.popleft() for _ in range(count)]
        self._discard()
        return taken

    @property
    def _last(self) -> int:
        """Number of the newest sample, as the buffer counts them."""
        return self.buffer.first + len(self._samples) - 1

    def _settle(self) -> None:
        self.buffer.arrive(self._last, rate=self.meter.rate)
        self._discard()

    def _discard(self) -> None:
        """Let go of what the buffer's policy has: always the oldest."""
        while len(self._samples) > self.buffer.waiting:
            self._samples.popleft()
