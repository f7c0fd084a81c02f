"""A process's own time: a thread that beats, and the longest that it stood still between two beats.

A process that is stopped or frozen, or that the host gives no CPU, does not beat. The clock goes on
meanwhile, so the beat after that is late. Nothing of this is on the way of a step or a push.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

BEAT_SECONDS = 1.0
"""Real seconds between two beats; of a stop, less than that stays unseen."""

MOST_BEATS = 50.0
"""A second, of all workers together: every beat takes the CPU from somebody who computes."""

TOLD_SECONDS = 1.0
"""Shorter gaps are no events: a full host has many of them."""


def interval(workers: int) -> float:
    """Real seconds between two beats of each of so many workers."""
    return max(BEAT_SECONDS, workers / MOST_BEATS)


class Heartbeat:
    """Remembers how late the latest beat of this process was.

    Args:
        steady: counts real seconds from any origin, and goes on while the process stands.
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
        """The process runs."""
        with self._lock:
            self._beat()

    def take(self) -> float:
        """The longest that the process stood still since this was last called, real seconds."""
        with self._lock:
            self._beat()
            longest, self._longest = self._longest, 0.0
        return longest

    @contextmanager
    def beating(self) -> Iterator[None]:
        """Beat in a thread of its own while the context lasts."""
        over = threading.Event()

        def go_on() -> None:
            while not over.wait(self._every):
                self.beat()

        thread = threading.Thread(target=go_on, name="heartbeat", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def _beat(self) -> None:
        now = self._steady()
        self._longest = max(self._longest, now - self._last - self._every)
        self._last = now
