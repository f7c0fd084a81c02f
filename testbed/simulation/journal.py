"""What a process of the pool was sent, so that another can take its place."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from testbed.errors import HostError
from testbed.simulation.wire import Content, put

LEAST_BYTES = 128 * 2**20
"""Bytes of messages below which no new snapshot is taken."""

SNAPSHOTS = 4
"""How many times as long as the last snapshot the messages are before the next is taken."""


@contextmanager
def _describing_errors() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        what = f"{tempfile.gettempdir()}: what an actor was sent cannot be kept: {error.strerror}."
        raise HostError(what, hint="Set TMPDIR to a folder with more space.") from None


class Journal:
    """A snapshot of the workers of a process, and the messages since.

    They are in a file without a name, which is written again from its beginning with each snapshot:
    the states of all workers, whose memory is elsewhere, would be a large part of the memory of the
    clock's process.
    """

    def __init__(self) -> None:
        self._sizes: list[int] = []
        self._snapshot_bytes = self._end = 0
        self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - see close

    def __len__(self) -> int:
        return len(self._sizes)

    def close(self) -> None:
        """Delete it."""
        self._file.close()

    def append(self, parts: Sequence[memoryview]) -> None:
        """Add a message."""
        before = self._end
        self._write(parts)
        self._sizes.append(self._end - before)

    @property
    def is_long(self) -> bool:
        """Whether the messages are so long that a snapshot should replace them.

        Snapshots then add at most a fourth to what is sent.
        """
        messages = self._end - self._snapshot_bytes
        return messages > max(LEAST_BYTES, SNAPSHOTS * self._snapshot_bytes)

    def replace(self, snapshot: Content, count: int) -> None:
        """Let a snapshot take the place of the last one and of the first messages."""
        start = self._snapshot_bytes + sum(self._sizes[:count])
        kept = self._read(start, self._end - start)
        self._sizes, self._end, self._snapshot_bytes = self._sizes[count:], 0, len(snapshot)
        self._write([memoryview(one) for one in (snapshot, kept) if one])

    def read(self) -> tuple[bytes, Iterator[bytes]]:
        """Return the snapshot, and the messages one by one."""
        return self._read(0, self._snapshot_bytes), self._messages()

    def _messages(self) -> Iterator[bytes]:
        start = self._snapshot_bytes
        for size in self._sizes:
            yield self._read(start, size)
            start += size

    def _read(self, start: int, size: int) -> bytes:
        with _describing_errors():
            found = bytearray()
            while len(found) < size:
                found += os.pread(self._file.fileno(), size - len(found), start + len(found))
            return bytes(found)

    def _write(self, parts: Sequence[memoryview]) -> None:
        def write(some: Sequence[memoryview]) -> int:
            written = os.pwritev(self._file.fileno(), some, self._end)
            self._end += written
            return written

        with _describing_errors():
            put(write, parts)
