"""The parameter server's events, one line of JSON each, on disk as soon as they happen."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from testbed.roles.clock import Clock
from testbed.telemetry.events import event_line


class Journal:
    """Appends events to a file.

    Args:
        path: the file.
        clock: of the training.
        wall: seconds since 1970.
    """

    def __init__(self, path: Path, *, clock: Clock, wall: Callable[[], float] = time.time) -> None:
        self._file = path.open("a", buffering=1, encoding="utf-8")
        self._clock = clock
        self._wall = wall

    def write(self, event: str, **fields: Any) -> None:
        """Something happened just now."""
        moment = {"time": self._wall(), "elapsed_seconds": self._clock.elapsed, "event": event}
        self._file.write(event_line(moment | fields))

    def close(self) -> None:
        """Close the file; doing it twice is harmless."""
        self._file.close()
