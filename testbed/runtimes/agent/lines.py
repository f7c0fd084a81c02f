"""One end of a stream of lines over two descriptors: a socket's, or those of pipes.

Nothing in here blocks: what the other end does not read yet is kept in ``unsent``.
"""

from __future__ import annotations

import errno
import os
import select
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from testbed.errors import RejectedError

CHUNK_BYTES = 2**16
CLOSED = -1
MOST_DESCRIPTORS = 4
"""In one read."""


class OversizedLineError(RejectedError):
    """A line is longer than any may be."""


@dataclass(eq=False)
class Lines:
    """One end of a stream of lines; it owns its descriptors and makes them non-blocking."""

    reader: int  # descriptor to read from
    writer: int  # descriptor to write to; another one than ``reader``, also for a socket
    line_bytes: int  # limit of a received line
    takes_descriptors: bool = False  # whether the other end may send some, into ``descriptors``
    unpack: Callable[[bytes], bytes] | None = (
        None  # removes what carries the stream, such as frames
    )
    # becomes readable once the other end has ended, where the end of the stream may not arrive
    other_end: int = CLOSED
    unsent: bytearray = field(default_factory=bytearray)  # what could not be written yet
    descriptors: list[int] = field(default_factory=list)  # received, and owned by the caller
    _partial: bytearray = field(default_factory=bytearray)

    def __post_init__(self) -> None:
        os.set_blocking(self.reader, False)
        os.set_blocking(self.writer, False)

    @classmethod
    def over(
        cls, peer: socket.socket, *, line_bytes: int, takes_descriptors: bool = False
    ) -> Lines:
        """Return an end over a connected socket, which it takes over."""
        writer = os.dup(peer.fileno())
        return cls(peer.detach(), writer, line_bytes, takes_descriptors)

    @property
    def readers(self) -> tuple[int, ...]:
        """The descriptors that become readable at news of the other end."""
        return (self.reader,) if self.other_end == CLOSED else (self.reader, self.other_end)

    def receive(self) -> list[bytes] | None:
        """Return the lines that are complete by now; None at the end of the stream.

        Raises:
            OversizedLineError: a line is too long.
        """
        try:
            data = self._read()
        except BlockingIOError:
            return None if self._other_end_has_ended() else []
        except OSError:  # the other end has closed it, and left something unread
            return None
        if not data:
            return None
        if self.unpack is not None:
            data = self.unpack(data)
        self._partial += data
        if b"\n" not in data:
            lines = []
        else:
            *lines, self._partial = self._partial.split(b"\n")
        if len(self._partial) > self.line_bytes:
            raise OversizedLineError(f"a line of over {self.line_bytes} bytes")
        return [bytes(line) for line in lines if line]

    def _other_end_has_ended(self) -> bool:
        poller = select.poll()
        if self.other_end != CLOSED:
            poller.register(self.other_end, select.POLLIN)
        return bool(poller.poll(0))

    def _read(self) -> bytes:
        if not self.takes_descriptors:
            return os.read(self.reader, CHUNK_BYTES)  # closes those that are sent
        with _socket(self.reader) as peer:
            flags = socket.MSG_CMSG_CLOEXEC
            data, descriptors, *_ = socket.recv_fds(peer, CHUNK_BYTES, MOST_DESCRIPTORS, flags)
        self.descriptors += descriptors
        return data

    def send_descriptor(self, line: bytes, descriptor: int) -> None:
        """Send a line together with a descriptor, of which the other end gets a duplicate.

        Raises:
            OSError: the other end has closed the stream, does not read, or is no socket's.
        """
        if self.unsent:
            raise BlockingIOError(errno.EAGAIN, "earlier replies were not read")
        with _socket(self.writer) as peer:
            sent = socket.send_fds(peer, [line + b"\n"], [descriptor])
        self.unsent += (line + b"\n")[sent:]

    def send(self, line: bytes = b"") -> None:
        """Send a line, without its end, after what is unsent, or as much as is accepted now.

        Raises:
            OSError: the other end has closed the stream.
        """
        if line:
            self.unsent += line + b"\n"
        try:
            while self.unsent:
                del self.unsent[: os.write(self.writer, self.unsent)]
        except BlockingIOError:
            pass  # the caller waits until ``writer`` accepts more

    def close(self) -> None:
        """Close all descriptors. Idempotent."""
        own = {self.reader, self.writer, self.other_end, *self.descriptors}
        for descriptor in own - {CLOSED}:
            os.close(descriptor)
        self.reader = self.writer = self.other_end = CLOSED
        self.descriptors.clear()


@contextmanager
def _socket(descriptor: int) -> Iterator[socket.socket]:
    """Use a descriptor as the socket that it is; it stays open.

    Raises:
        OSError: it is no socket's.
    """
    used = socket.socket(fileno=descriptor)
    try:
        yield used
    finally:
        used.detach()
