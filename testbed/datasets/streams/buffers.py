"""Buffers of samples that wait on a device until a step takes them.

Samples enter and leave in order, so the waiting samples are a range of sequence numbers, and a
buffer stores only its start and end. At any time

    produced = used + buffered + truncated + duplicates.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Annotated, Literal

from pydantic import Field

from testbed.values.family import Named
from testbed.values.fields import StrictModel


class Persistence(StrictModel):
    """All samples are kept until a step takes them."""

    name: Literal["persistence"]

    def buffer(self) -> Buffer:
        """Return an empty buffer with this policy."""
        return Buffer()


class Truncation(StrictModel):
    """Only samples that arrived since the last step are kept, at most a second of them.

    S. Tyagi, M. Swany, "ScaDLES", IEEE Big Data 2022, section IV: the buffer is bounded by S.
    Samples that a step does not take are discarded.
    """

    name: Literal["truncation"]

    def buffer(self) -> Buffer:
        """Return an empty buffer with this policy."""
        return Buffer(keeps_rest=False, seconds=1.0)


class Bounded(StrictModel):
    """A limited number of samples is kept; new samples replace the oldest.

    Attributes:
        samples: maximum number. Samples that a step waits for do not count: the step takes them
            directly.
    """

    name: Literal["bounded"]
    samples: Annotated[int, Field(ge=1, le=10**9, strict=True)]

    def buffer(self) -> Buffer:
        """Return an empty buffer with this policy."""
        return Buffer(room=self.samples)


Policy = Annotated[Persistence | Truncation | Bounded, Named()]


@dataclass
class Buffer:
    """A device's buffer, as sequence numbers that start at 1.

    Attributes:
        keeps_rest: whether samples that a step leaves are kept.
        room: maximum number of samples; None for no bound.
        seconds: maximum content, in seconds of its stream; None for no bound.
        produced: samples that arrived, including repeated ones.
        used: samples that steps have taken.
        truncated: samples that were discarded.
        duplicates: samples that had arrived before, and were dropped.
        first: the oldest waiting sample, or the next to arrive.
        last: the newest sample that has arrived.
    """

    keeps_rest: bool = True
    room: int | None = None
    seconds: float | None = None
    produced: int = 0
    used: int = 0
    truncated: int = 0
    duplicates: int = 0
    first: int = 1
    last: int = 0

    @property
    def waiting(self) -> int:
        """Number of samples in the buffer."""
        return self.last + 1 - self.first

    def most(self, rate: float) -> float:
        """Return its maximum number of samples while its stream delivers ``rate`` per second."""
        if self.seconds is not None:
            return max(1, round(self.seconds * rate))
        return inf if self.room is None else self.room

    def arrive(self, last: int, *, rate: float) -> None:
        """Add all samples up to number ``last``, which arrived while no step was waiting.

        Args:
            last: the newest of them.
            rate: current samples per second of the stream.
        """
        self._come(last)
        if self.waiting > (most := self.most(rate)):
            self._discard(self.waiting - int(most))

    def repeat(self) -> None:
        """Count a sample that had arrived before."""
        self.produced += 1
        self.duplicates += 1

    def take(self, count: int, *, last: int = 0) -> range:
        """Take the ``count`` oldest samples for a step; return their sequence numbers.

        Those up to ``last`` arrived while the step waited for them.

        Raises:
            ValueError: fewer samples are available.
        """
        self._come(last)
        if count > self.waiting:
            raise ValueError(f"{count} samples requested, {self.waiting} are available")
        taken = range(self.first, self.first + count)
        self.first += count
        self.used += count
        if not self.keeps_rest:
            self._discard(self.waiting)
        return taken

    def _come(self, last: int) -> None:
        new = max(0, last - self.last)
        self.produced += new
        self.last += new

    def _discard(self, count: int) -> None:
        self.first += count
        self.truncated += count
