"""The two times of a run: real seconds, and the emulated ones that scenarios and reports speak."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass


@dataclass
class EmulatedClock:
    """Counts from the start of the training.

    Attributes:
        time_scale: emulated seconds per real second.
        steady: real seconds from any origin, never set back.
    """

    time_scale: float
    steady: Callable[[], float] = time.monotonic
    _start: float | None = None

    def start(self, now: float = 0.0) -> None:
        """The emulated time is ``now`` at this moment."""
        self._start = self.steady() - now / self.time_scale

    @property
    def started(self) -> bool:
        """Whether the training has begun."""
        return self._start is not None

    @property
    def elapsed(self) -> float | None:
        """Real seconds since the start, or None before."""
        return None if self._start is None else self.steady() - self._start

    @property
    def now(self) -> float:
        """Emulated seconds since the start; 0 before."""
        return 0.0 if self._start is None else (self.steady() - self._start) * self.time_scale

    def emulated(self, real: float) -> float:
        """How long real seconds are in the emulation."""
        return real * self.time_scale

    def real(self, emulated: float) -> float:
        """How long emulated seconds really take."""
        return emulated / self.time_scale


async def wait(event: asyncio.Event, seconds: float | None) -> bool:
    """Wait for an event, but no longer than that (None: for ever). Returns whether it has come."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
    return event.is_set()
