"""Copies the output of nodes into their logs, each up to a limit, and the end of what is beyond.

A node prints into a pipe: into a file it could write until the host's disk is full. A thread of
the agent's own process reads all pipes. It keeps reading when a log is full, so that the node keeps
running; but no faster than a node could sensibly print, or the agent would do nothing else.
"""

from __future__ import annotations

import os
import resource
import selectors
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock, Thread

LOG_BYTES = 16 * 2**20
"""Limit of a node's log; a notice and the end of the output follow."""

TAIL_BYTES = 1 << 16
"""Output of a role beyond the limit that is kept for when it has ended: a traceback is there."""

NOTICE = (
    f"\n[testbed] more than {LOG_BYTES >> 20} MiB: the rest is left out, except the last "
    f"{TAIL_BYTES >> 10} KiB, once the node has ended.\n"
).encode()

CHUNK_BYTES = 1 << 16
"""Capacity of a pipe."""

PAUSE_SECONDS = 0.002
"""After a full pipe was read: limits a node to 32 MB/s."""

MOST_CHUNKS = 32
"""The largest capacity that an unprivileged process can give a pipe."""


def is_full(log: Path) -> bool:
    """Return whether a node has printed more than its log holds."""
    try:
        return log.stat().st_size > LOG_BYTES
    except OSError:  # no node has printed anything, or the folder was deleted
        return False


@dataclass
class Log:
    """The log of one node: the pipe that it prints into, and the file."""

    reader: int
    file: int
    room: int  # bytes that may still be written; negative once the file says that it is full
    _tail: bytes = b""  # the latest output beyond the limit

    @classmethod
    def open(cls, path: Path) -> tuple[Log, int]:
        """Open the file, which may hold an earlier role's output; also return the node's end."""
        file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        reader, writer = os.pipe()
        os.set_blocking(reader, False)
        return cls(reader, file, LOG_BYTES - os.fstat(file).st_size), writer

    def copy(self) -> int:
        """Copy available output, one chunk at most; return its size, 0 at the end of the pipe.
        Raises:
            BlockingIOError: no output is available yet.
        """
        data = os.read(self.reader, CHUNK_BYTES)
        beyond = data[max(0, self.room) :]
        if data and self.room >= 0:
            self._write(data[: self.room] + (NOTICE if beyond else b""))
            self.room -= len(data)
        self._tail = (self._tail + beyond)[-TAIL_BYTES:]
        return len(data)

    def close(self) -> None:
        """Write the end of the output, if the log was too short for it; close pipe and file."""
        self._write(self._tail)
        os.close(self.reader)
        os.close(self.file)

    def _write(self, data: bytes) -> None:
        try:
            while data:
                data = data[os.write(self.file, data) :]
        except OSError:  # the disk is full, as the run's own files will show; the node continues
            self.room = -1


@dataclass(eq=False)
class Logs:
    """The logs of all nodes that can still print."""

    _selector: selectors.BaseSelector = field(default_factory=selectors.DefaultSelector)
    _lock: Lock = field(default_factory=Lock)
    _open: dict[Path, list[Log]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # two for every node
        Thread(target=self._run, name="logs", daemon=True).start()

    def open(self, path: Path) -> int:
        """Return a descriptor to print into; its output is copied into the file, which is created.

        Raises:
            OSError: the file cannot be opened.
        """
        log, writer = Log.open(path)
        with self._lock:
            self._open.setdefault(path, []).append(log)
            self._selector.register(log.reader, selectors.EVENT_READ, path)
        return writer

    def catch_up(self, path: Path) -> None:
        """Copy all output so far, for example when the node has ended."""
        with self._lock:
            for log in tuple(self._open.get(path, ())):
                self._copy(path, log, chunks=MOST_CHUNKS)

    def catch_up_all(self) -> None:
        """Copy all output so far of all nodes."""
        for path in tuple(self._open):
            self.catch_up(path)

    def _run(self) -> None:
        while True:
            busy = False
            for key, _ in self._selector.select():
                with self._lock:
                    for log in tuple(self._open.get(key.data, ())):
                        busy |= self._copy(key.data, log, chunks=1)
            if busy:
                time.sleep(PAUSE_SECONDS)

    def _copy(self, path: Path, log: Log, *, chunks: int) -> bool:
        """Copy up to ``chunks`` chunks; return whether the last one was full."""
        copied = CHUNK_BYTES
        with suppress(BlockingIOError):
            while chunks and copied == CHUNK_BYTES:
                copied = log.copy()
                chunks -= 1
            if copied:
                return copied == CHUNK_BYTES
            self._forget(path, log)
        return False

    def _forget(self, path: Path, log: Log) -> None:
        """Remove a pipe that has ended: no process can print into it any more."""
        self._selector.unregister(log.reader)
        log.close()
        self._open[path].remove(log)
        if not self._open[path]:
            del self._open[path]
