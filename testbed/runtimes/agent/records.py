"""The records of a parameter server on another host, copied to this one while they grow."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from testbed.runtimes.agent.client import AgentClient, Written
from testbed.runtimes.agent.operations import WRITTEN_BYTES
from testbed.telemetry.entry import NAMES
from testbed.telemetry.files import LONGEST_LINE
from testbed.telemetry.folder import RunFolder
from testbed.telemetry.ps_events import Restored
from testbed.telemetry.spool import bytes_of_rows
from testbed.telemetry.wall import ClockOffset


@dataclass
class ServerRecords:
    """Copies of the updates and events of a parameter server, in the same files on this host.

    The updates are read first: an event whose copy is there says nothing of updates that were
    removed later. Events get the times of this host's clock; a malformed one is copied unchanged.

    Attributes:
        agent: of the server's host.
        folder: of the run.
        clock: returns the offset of that host's clock.
    """

    agent: AgentClient
    folder: RunFolder
    clock: Callable[[], ClockOffset]
    _read: dict[Path, int] = field(init=False)  # bytes of the originals
    _line: bytes = b""  # incomplete
    _asked: Callable[[bool], Written | None] | None = None

    def __post_init__(self) -> None:
        self._read = {self.folder.spool: 0, self.folder.ps_events: 0}

    def copy(self, *, whole: bool = False) -> None:
        """Append what has arrived, and ask for more; all that there is at the call if ``whole``.

        Otherwise it waits for nothing: the agent may be launching a node.

        Raises:
            NodeError: the agent has ended, or what it found is no record; names the node.
        """
        self._receive(wait=whole)  # asked for before
        while whole and self._receive(wait=True):
            pass
        self._ask()

    def _ask(self) -> Callable[[bool], Written | None]:
        if self._asked is None:
            self._asked = self.agent.begin_written(self._read)
        return self._asked

    def _receive(self, *, wait: bool) -> bool:
        """Append what arrives; return whether there was more at the time of the request."""
        asked, self._asked = self._ask(), None  # an error ends it, too
        if (found := asked(wait)) is None:
            self._asked = asked
            return False
        return self._append(found)

    def _append(self, found: Written) -> bool:
        events = found.get(self.folder.ps_events, b"")
        *lines, self._line = (self._line + events).split(b"\n")
        if len(self._line) > LONGEST_LINE:  # which its reader refuses
            lines, self._line = [*lines, self._line], b""
        self._read[self.folder.ps_events] += len(events)
        parsed = [_parsed(line) for line in lines]
        restored = [version for one in parsed if (version := _restored(one)) is not None]
        if restored:
            self._cut(min(restored))
        else:
            updates = found.get(self.folder.spool, b"")
            _extend(self.folder.spool, updates)
            self._read[self.folder.spool] += len(updates)
        offset = self.clock() if lines else ClockOffset(0.0, 0.0)
        copies = (
            line if one is None else _at(one, offset)
            for line, one in zip(lines, parsed, strict=True)
        )
        _extend(self.folder.ps_events, b"".join(copy + b"\n" for copy in copies))
        return bool(restored) or any(len(data) == WRITTEN_BYTES for data in found.values())

    def _cut(self, rows: int) -> None:
        """Remove all updates but the first ``rows``, as a server that was restarted has."""
        with suppress(FileNotFoundError):
            size = min(bytes_of_rows(self.folder.spool, rows), self._read[self.folder.spool])
            os.truncate(self.folder.spool, size)
            self._read[self.folder.spool] = size


def _extend(path: Path, data: bytes) -> None:
    if data:
        with path.open("ab") as file:
            file.write(data)


def _parsed(line: bytes) -> dict[str, Any] | None:
    """Return the content of an event's line; None if it is malformed."""
    try:
        content = json.loads(line)
    except (ValueError, RecursionError):
        return None
    is_event = isinstance(content, dict) and isinstance(content.get("time"), float)
    return content if is_event else None


def _restored(content: Mapping[str, Any] | None) -> int | None:
    """Return the version that a server was restarted from, if the event is about that."""
    if content is None or content.get("event") != NAMES[Restored]:
        return None
    version = content.get("version")
    return version if isinstance(version, int) and version >= 0 else None


def _at(content: Mapping[str, Any], offset: ClockOffset) -> bytes:
    """Return an event's line with a time of this host's clock."""
    return json.dumps({**content, "time": offset.here(content["time"])}).encode()
