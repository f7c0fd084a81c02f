"""Wall-clock times derived from a single reading, so setting the clock does not affect them."""

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
