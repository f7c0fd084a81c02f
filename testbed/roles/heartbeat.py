"""Detects pauses of a process: a thread beats, and measures the longest gap between two beats.

A process that is stopped, frozen or starved of CPU does not beat. Its clock keeps running, so the
next beat is late. None of this is in the path of a step or a push.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

BEAT_SECONDS = 1.0
"""Real seconds between two beats; shorter pauses are not detected."""

MAX_BEATS = 50.0
"""Per second, of all workers together: every beat takes CPU from computing workers."""

LOGGED_GAP_SECONDS = 1.0
"""Shorter gaps are not logged: a busy host has many of them."""


def interval(workers: int) -> float:
    """Return the real seconds between two beats, given the number of workers."""
    return max(BEAT_SECONDS, workers / MAX_BEATS)


class Heartbeat:
    """Measures how late the beats of this process are.

    Args:
        steady: monotonic real seconds from any origin, running while the process is stopped.
        every: real seconds between two beats.
    """

    def __init__(
        self, steady: Callable[[], float] = time.monotonic, *, every: float = BEAT_SECONDS
    ) -> None:
        self._steady = steady
        self._every = every
        self._last = steady()
        self._longest = 0.0
        self._lock = threading.Lock()  # a gap between reading and clearing would be lost

    def beat(self) -> None:
        """Record a beat."""
        with self._lock:
            now = self._steady()
            self._longest = max(self._longest, now - self._last - self._every)
            self._last = now

    def take(self) -> float:
        """Return the longest pause since the last call, in real seconds."""
        self.beat()
        with self._lock:
            longest, self._longest = self._longest, 0.0
        return longest

    @contextmanager
    def beating(self) -> Iterator[None]:
        """Beat in a background thread inside the context."""
        over = threading.Event()

        def beat_until_over() -> None:
            while not over.wait(self._every):
                self.beat()

        thread = threading.Thread(target=beat_until_over, name="heartbeat", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
