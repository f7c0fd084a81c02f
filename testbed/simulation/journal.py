"""What a process of the pool was sent, so that another can take its place."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from testbed.errors import HostError

LEAST_BYTES = 32 * 2**20
"""Bytes of messages below which no new snapshot is taken."""


@contextmanager
def _describing_errors() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        what = f"{tempfile.gettempdir()}: what an actor was sent cannot be kept: {error.strerror}."
        raise HostError(what, hint="Set TMPDIR to a folder with more space.") from None


class Journal:
    """A snapshot of the workers of a process, and the messages since.

    They are in a file without a name: the states of all workers, whose memory is elsewhere, would
    be a large part of the memory of the clock's process.
    """

    def __init__(self, snapshot: bytes = b"") -> None:
        self._snapshot_bytes = len(snapshot)
        self._sizes: list[int] = []
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - see close
        self._file.write(snapshot)

    def __len__(self) -> int:
        return len(self._sizes)

    def close(self) -> None:
        """Delete it."""
        self._file.close()

    def append(self, message: bytes) -> None:
        """Add a message."""
        with _describing_errors():
            self._file.seek(0, os.SEEK_END)
            self._file.write(message)
        self._sizes.append(len(message))

    @property
    def is_long(self) -> bool:
        """Whether the messages are so long that a snapshot should replace them.

        Twice as long as the last one: snapshots then add at most half to what is sent.
        """
        return sum(self._sizes) > max(LEAST_BYTES, 2 * self._snapshot_bytes)

    def read(self) -> tuple[bytes, Iterator[bytes]]:
        """Return the snapshot, and the messages one by one."""
        with _describing_errors():
            self._file.seek(0)  # writes what is still in memory
        return self._file.read(self._snapshot_bytes), map(self._file.read, self._sizes)
