"""Files of events, one line of JSON each: written as they happen, read while they grow."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from testbed.errors import TestbedError
from testbed.events.entry import Entry
from testbed.events.kinds import Event
from testbed.telemetry.files import LineReader


class EventLog:
    """Appends to a file; every line is on disk before the next is written.

    The clocks tell the real seconds since the training started (None before) and since 1970.
    """

    def __init__(
        self,
        path: Path,
        *,
        elapsed: Callable[[], float | None] = lambda: None,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._file = path.open("a", buffering=1, encoding="utf-8")
        self._elapsed = elapsed
        self._wall = wall

    def write(self, event: Event) -> None:
        """This happened just now."""
        self.append(Entry(self._wall(), self._elapsed(), event))

    def append(self, entry: Entry) -> None:
        """This happened when it says."""
        self._file.write(entry.line())

    def close(self) -> None:
        """Close the file; doing it twice is harmless."""
        self._file.close()


class EventReader:
    """Follows a file of events that may still grow, or that does not exist yet."""

    def __init__(self, path: Path) -> None:
        self._lines = LineReader(path)
        self._number = 0

    def read(self) -> list[Entry]:
        """The entries that are new, without a last line that is not complete.

        Raises:
            TestbedError: a line is damaged; names it.
        """
        return [self._parse(line) for line in self._lines.read()]

    def _parse(self, line: bytes) -> Entry:
        self._number += 1
        try:
            return Entry.parse(line)
        except ValueError as error:
            raise TestbedError(
                f"{self._lines.path}:{self._number}: found {line[:60]!r}, {error}.",
                hint="The file is damaged; remove that line to read the rest.",
            ) from None


def read_events(path: Path) -> list[Entry]:
    """All entries of a file; none if it does not exist. See ``EventReader.read``."""
    return EventReader(path).read()
