"""Wall-clock times derived from a single reading, so setting the clock does not affect them.

The clock of another host is compared with this one's by asking for it (Cristian, 1989): it was read
at some moment between the request and its reply, so the shortest of several round trips is best.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(eq=False)
class WallClock:
    """Returns seconds since 1970: one reading of the host's clock plus steady time since then."""

    # the host's wall clock, which may be set while a run is active
    host: Callable[[], float] = time.time
    steady: Callable[[], float] = time.monotonic  # a monotonic clock
    _read: tuple[float, float] = field(init=False)

    def __post_init__(self) -> None:
        self.read()

    def read(self) -> float:
        """Read the host's clocks again, when a run begins; return seconds since 1970."""
        self._read = self.host(), self.steady()
        return self._read[0]

    def __call__(self) -> float:
        """Return seconds since 1970."""
        wall, steady = self._read
        return wall + (self.steady() - steady)

    def offset(self) -> float:
        """Return how far the host's clock was set since the reading; includes host sleep."""
        return self.host() - self()


WALL = WallClock()
"""The clock of this process and its forks."""


def clock_set(seconds: float) -> str:
    """Return the message for a wall clock that moved by this many seconds."""
    return f"The host's wall clock was set by {seconds:+,.1f} s, or the host slept"


ROUND_TRIPS = 8
"""Per measurement: a request waits while an agent launches a node, most others do not."""


@dataclass(frozen=True)
class ClockOffset:
    """How far another host's clock is ahead of this one's, in seconds.

    Attributes:
        seconds: the best estimate; negative if it is behind.
        error_seconds: the true offset is at most this far from the estimate, as long as the other
            clock was read between request and reply: half of the round trip.
    """

    seconds: float
    error_seconds: float

    def here(self, there: float) -> float:
        """Convert a time of the other clock to this one's."""
        return there - self.seconds

    def there(self, here: float) -> float:
        """Convert a time of this clock to the other one's."""
        return here + self.seconds


def measure_offset(
    read: Callable[[], float],
    *,
    clock: Callable[[], float] = WALL,
    round_trips: int = ROUND_TRIPS,
) -> ClockOffset:
    """Return the offset of the clock that ``read`` asks for, by the shortest of the round trips."""
    found = []
    for _ in range(round_trips):
        asked = clock()
        there = read()
        half = (clock() - asked) / 2
        found.append(ClockOffset(there - (asked + half), half))
    return min(found, key=lambda one: one.error_seconds)
