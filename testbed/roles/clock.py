"""The two times of a run: real seconds, and the emulated seconds of scenarios and reports."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import ClassVar


@dataclass
class EmulatedClock:
    """Measures time from the start of the training.

    Attributes:
        time_scale: emulated seconds per real second.
        steady: monotonic real seconds from any origin.
    """

    STATE: ClassVar = ("_start",)
    time_scale: float
    steady: Callable[[], float] = time.monotonic
    _start: float | None = None

    def start(self, now: float = 0.0) -> None:
        """Start the clock at the emulated time ``now``."""
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
        """Convert real seconds to emulated seconds."""
        return real * self.time_scale

    def real(self, emulated: float) -> float:
        """Convert emulated seconds to real seconds."""
        return emulated / self.time_scale


async def wait(event: asyncio.Event, seconds: float | None) -> bool:
    """Wait for an event, at most ``seconds`` (None: for ever). Return whether it was set."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
    return event.is_set()
