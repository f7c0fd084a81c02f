"""Event files, one line of JSON per event: written immediately, read while they grow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

from testbed.errors import DataError
from testbed.telemetry.entry import FROM_PS, NAMES, Entry, check_from_ps
from testbed.telemetry.event import Event
from testbed.telemetry.files import LineReader
from testbed.telemetry.ps_events import Omitted
from testbed.telemetry.untrusted import SpoiledError
from testbed.telemetry.wall import WALL


class EventLog:
    """Appends to a file; every line is on disk before the next is written.

    The clocks return real seconds since the training started (None before) and since 1970. At most
    ``most`` events per kind and node are written; all others are counted and summarised.
    """

    def __init__(
        self,
        path: Path,
        *,
        elapsed: Callable[[], float | None] = lambda: None,
        wall: Callable[[], float] = WALL,
        most: int | None = None,
    ) -> None:
        self._file = path.open("a", buffering=1, encoding="utf-8")
        self._elapsed = elapsed
        self._wall = wall
        self._most = most
        self._written: Counter[tuple[type[Event], str | None]] = Counter()
        self._omitted: Counter[tuple[type[Event], str | None]] = Counter()

    def write(self, event: Event) -> None:
        """Write an event that happened now."""
        if self._most is not None and hasattr(event, "node"):
            of_node = type(event), event.node
            if self._written[of_node] >= self._most:
                self._omitted[of_node] += 1
                return
            self._written[of_node] += 1
        self.append(Entry(self._wall(), self._elapsed(), event))

    def summarise(self) -> None:
        """Write the number of events omitted since the last summary."""
        omitted, self._omitted = self._omitted, Counter()
        for (kind, node), count in omitted.items():
            event = Omitted(node, NAMES[kind], count)
            self.append(Entry(self._wall(), self._elapsed(), event))

    def append(self, entry: Entry) -> None:
        """Write an event with its own time."""
        self._file.write(entry.line())

    def close(self) -> None:
        """Summarise, and close the file. Idempotent."""
        if not self._file.closed:
            self.summarise()
            self._file.close()


class EventReader:
    """Follows a file of events that may still grow, or that does not exist yet.

    Args:
        path: the file.
        node: the untrusted node that writes the file; empty for the controller.
    """

    def __init__(self, path: Path, *, node: str = "") -> None:
        self._lines = LineReader(path, node)
        self._number = 0

    def read(self) -> list[Entry]:
        """Return the new entries, without an incomplete last line.

        Raises:
            DataError: a line is damaged; names it.
            SpoiledError: a node wrote something that is not its record; names both.
        """
        return [self._parse(line) for line in self._lines.read()]

    def _parse(self, line: bytes) -> Entry:
        self._number += 1
        node = self._lines.node
        try:
            entry = Entry.parse(line)
            if node:
                check_from_ps(entry)
            return entry
        except ValueError as error:
            if node:
                what = f"{line[:60]!r} in line {self._number}, {error}"
                raise SpoiledError(self._lines.path, node, what) from None
            raise DataError(
                f"{self._lines.path}:{self._number}: found {line[:60]!r}, {error}.",
                hint="The file is damaged; remove this line to read the rest.",
            ) from None


def read_events(path: Path) -> list[Entry]:
    """Read all entries of a file; none if it does not exist. See ``EventReader.read``."""
    return EventReader(path).read()


def follow_ps_events(path: Path) -> EventReader:
    """Return a reader of the parameter server's events, which validates them."""
    return EventReader(path, node=FROM_PS)
