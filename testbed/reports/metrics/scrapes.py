"""Who scrapes a run, and when: its end waits for one last scrape of each."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from email.message import Message
from typing import NamedTuple

SCRAPES = "X-Prometheus-Scrape-Timeout-Seconds"
"""Header of those who scrape regularly, such as Prometheus; a browser does not send it."""

LONGEST_SECONDS = 15.0
"""How long the end of a run waits at most."""

LATE_FACTOR = 1.5
"""A scraper that is late by more than half of its interval has ended."""


class _Scraper(NamedTuple):
    began: float  # its last scrape
    interval: float | None = None  # between its last two; None after the first

    def until(self, now: float) -> float:
        """Return how long to wait for its next scrape; not after ``now`` if it is in vain."""
        latest = now + LONGEST_SECONDS
        if self.interval is None:
            return latest if now - self.began < LONGEST_SECONDS else now
        if self.began + self.interval > latest:
            return now
        return max(now, min(self.began + LATE_FACTOR * self.interval, latest))


class Scrapes:
    """The answered scrapes, by client; several threads may use it.

    Args:
        clock: monotonic, in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self._answered = threading.Condition()
        self._scrapers: dict[tuple[str, str], _Scraper] = {}

    def add(self, host: str, headers: Message, *, began: float) -> None:
        """Record an answered request of a host, if it scrapes regularly."""
        if SCRAPES not in headers:
            return
        client = host, headers.get("User-Agent", "")
        with self._answered:
            last = self._scrapers.get(client)
            interval = None if last is None else began - last.began
            self._scrapers[client] = _Scraper(began, interval)
            self._answered.notify_all()

    def await_last(self) -> None:
        """Wait until all scrapers have scraped what there is now, or do not scrape any more."""
        now = self.clock()
        with self._answered:
            until = {client: one.until(now) for client, one in self._scrapers.items()}
            while True:
                awaited = [until[one] for one in until if self._scrapers[one].began < now]
                left = max(awaited, default=now) - self.clock()
                if left <= 0:
                    return
                self._answered.wait(left)
