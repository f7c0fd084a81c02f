"""What becomes of samples that wait at a device for a step to take them.

Samples come and go in their order, so that what waits is a run of sequence numbers, and a buffer
needs to know where it begins and ends. At every moment

    produced = used + buffered + truncated + duplicates.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Annotated, Literal

from pydantic import Field

from testbed.values.family import Named
from testbed.values.fields import Part


class Persistence(Part):
    """Everything is kept until a step takes it."""

    name: Literal["persistence"]

    def buffer(self) -> Buffer:
        """An empty one."""
        return Buffer()


class Truncation(Part):
    """The newest samples that have come since the last step are kept, a second's at most.

    S. Tyagi, M. Swany, "ScaDLES", IEEE Big Data 2022, section IV: the buffer is bounded by S. What
    a step leaves is discarded.
    """

    name: Literal["truncation"]

    def buffer(self) -> Buffer:
        """An empty one."""
        return Buffer(keeps_rest=False, seconds=1.0)


class Bounded(Part):
    """At most so many samples are kept; a new one takes the place of the oldest.

    Attributes:
        samples: how many. Those that a step waits for go to the step, and need no room.
    """

    name: Literal["bounded"]
    samples: Annotated[int, Field(ge=1, le=10**9, strict=True)]

    def buffer(self) -> Buffer:
        """An empty one."""
        return Buffer(room=self.samples)


Policy = Annotated[
    Annotated[Persistence | Truncation | Bounded, Field(discriminator="name")], Named()
]


@dataclass
class Buffer:
    """A device's buffer, in sequence numbers from 1 on.

    Attributes:
        keeps_rest: whether what a step leaves is kept.
        room: samples that it holds at most; None for no bound.
        seconds: it holds at most what its stream brings in so long; None for no bound.
        produced: samples that came, repeated ones too.
        used: those that steps have taken.
        truncated: those that were discarded.
        duplicates: those that had come before, and were dropped.
        first: the oldest sample that waits, or the next to come.
        last: the newest that has come.
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
        """How many samples are in it."""
        return self.last + 1 - self.first

    def most(self, rate: float) -> float:
        """How many samples it holds at most while its stream brings ``rate`` a second."""
        if self.seconds is not None:
            return max(1, round(self.seconds * rate))
        return inf if self.room is None else self.room

    def arrive(self, last: int, *, rate: float) -> None:
        """All samples up to number ``last`` have come, while no step waits for them.

        Args:
            last: the newest of them.
            rate: samples a second of the stream now.
        """
        self._come(last)
        if self.waiting > (most := self.most(rate)):
            self._discard(self.waiting - int(most))

    def repeat(self) -> None:
        """A sample came that had come before."""
        self.produced += 1
        self.duplicates += 1

    def take(self, count: int, *, last: int = 0) -> range:
        """A step takes the ``count`` oldest samples; returns their sequence numbers.

        Those up to ``last`` have come while it waited for them.

        Raises:
            ValueError: there are fewer.
        """
        self._come(last)
        if count > self.waiting:
            raise ValueError(f"{count} samples wanted, {self.waiting} are there")
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
