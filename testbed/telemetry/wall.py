"""Moments by the wall clock, derived from one reading: setting that clock moves none of them."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(eq=False)
class WallClock:
    """Tells seconds since 1970: what was once read, and what has passed since on a steady clock.

    Attributes:
        host: the host's wall clock, which may be set while a run is active.
        steady: one that is never set.
    """

    host: Callable[[], float] = time.time
    steady: Callable[[], float] = time.monotonic
    _read: tuple[float, float] = field(init=False)

    def __post_init__(self) -> None:
        self.read()

    def read(self) -> float:
        """Read the host's clocks anew, as a run begins; returns seconds since 1970."""
        self._read = self.host(), self.steady()
        return self._read[0]

    def __call__(self) -> float:
        """Seconds since 1970."""
        wall, steady = self._read
        return wall + (self.steady() - steady)

    def offset(self) -> float:
        """How far the host's clock was set since it was read; also how long the host slept."""
        return self.host() - self()


WALL = WallClock()
"""That of this process, and of those that it forks."""


def clock_set(seconds: float) -> str:
    """What is told of a wall clock that moved by so many seconds."""
    return f"The host's wall clock was set by {seconds:+,.1f} s, or the host slept"
