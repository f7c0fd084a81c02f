"""Messages between the clock's process and an actor: a pickle, and rows without copies of them.

A message begins with the length of its pickle and the number of its rows, and the number and length
of each row.
"""

from __future__ import annotations

import select
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from testbed.payloads import Vector

MOST_PARTS = 1024
"""How many buffers the kernel takes at once."""

Content = bytes | memoryview
"""A pickle."""

Room = Callable[[int], Vector]
"""Returns where a row is received, by its number."""


@dataclass(frozen=True)
class Message:
    """A message, with views of the rows that it refers to."""

    content: Content
    rows: Mapping[int, Vector] = field(default_factory=dict)

    def __len__(self) -> int:
        return sum(map(len, self.parts))

    @cached_property
    def parts(self) -> list[memoryview]:
        """Its bytes, with the rows where they are."""
        sizes = [(number, row.size) for number, row in self.rows.items()]
        head = np.array([(len(self.content), len(sizes)), *sizes], np.int64)
        whole: Sequence[Any] = (
            head.ravel(),
            np.frombuffer(self.content, np.uint8),
            *self.rows.values(),
        )
        return [memoryview(one).cast("B") for one in whole if one.size]


def put(write: Callable[[Sequence[memoryview]], int], parts: Sequence[memoryview]) -> None:
    """Write all parts by calls that may each write less, and return how many bytes they did."""
    left = list(reversed(parts))
    while left:
        written = write(left[: -MOST_PARTS - 1 : -1])
        while left and written >= len(left[-1]):
            written -= len(left.pop())
        if written:
            left[-1] = left[-1][written:]


def _no_matter() -> None:
    pass


@dataclass(frozen=True)
class Peer:
    """One end of a connection.

    Attributes:
        look: called when nothing has come or gone for some time; raises if nothing will.
        look_seconds: that time; None: it is not called.
    """

    socket: socket.socket
    look: Callable[[], None] = _no_matter
    look_seconds: float | None = None

    def __post_init__(self) -> None:
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(
        self, parts: Sequence[memoryview], *, on_readable: Callable[[], Any] | None = None
    ) -> None:
        """Send a message.

        Args:
            parts: of it.
            on_readable: called when a message has arrived while this one cannot be sent: the other
                end may not read before its own is.
        """
        events = select.POLLOUT | (select.POLLIN if on_readable else 0)

        def write(some: Sequence[memoryview]) -> int:
            while True:
                try:
                    return self.socket.sendmsg(some, (), socket.MSG_DONTWAIT)
                except BlockingIOError:
                    if on_readable and self._wait(events) & select.POLLIN:
                        on_readable()
                    elif not on_readable:
                        self._wait(events)

        put(write, parts)

    def receive(self, room: Room) -> Message:
        """Wait for a message, and receive its rows where there is room for each.

        The rows of the result are the whole rooms, of which the message may have taken less.

        Raises:
            EOFError: the connection ended.
        """
        size, count = self._fill(np.empty(2, np.int64)).tolist()
        sizes = self._fill(np.empty((count, 2), np.int64)).tolist()
        content = memoryview(self._fill(np.empty(size, np.uint8)))
        rows = {}
        for number, length in sizes:
            rows[number] = room(number)
            self._fill(rows[number][:length])
        return Message(content, rows)

    def close(self) -> None:
        """Close this end."""
        self.socket.close()

    def _fill(self, array: Any) -> Any:
        """Receive the content of an array; return the array."""
        left = memoryview(array.reshape(-1)).cast("B") if array.size else memoryview(b"")
        while left:
            try:
                received = self.socket.recv_into(left, flags=socket.MSG_DONTWAIT)
            except BlockingIOError:
                self._wait(select.POLLIN)
                continue
            if not received:
                raise EOFError
            left = left[received:]
        return array

    def _wait(self, events: int) -> int:
        """Wait until one of these events has happened, and return which."""
        poll = select.poll()
        poll.register(self.socket, events)
        seconds = self.look_seconds
        while not (found := poll.poll(None if seconds is None else 1000 * seconds)):
            self.look()
        return found[0][1]
