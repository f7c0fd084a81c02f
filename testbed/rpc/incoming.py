"""The memory of unfinished long messages in a server, for all callers together."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

MAX_STALLED_BYTES = 256 * 2**20
"""Above this, stalled messages are given up, those that have waited longest first."""


class GivenUpError(Exception):
    """The server stops reading a message; its caller may send it again."""


@dataclass(eq=False)
class IncomingMessage:
    """A message being read.

    Attributes:
        last: arrival time of its last piece, in steady seconds.
        given_up: set to the reason when reading stops early.
        held_bytes: bytes received.
    """

    last: float
    given_up: asyncio.Future[str]
    held_bytes: int = 0

    async def next(self, read: Coroutine[Any, Any, Any]) -> Any:
        """Return the next piece.

        A read is never cancelled, since gRPC would not free its data: it ends together with its
        call.

        Raises:
            GivenUpError: the server stops reading the message.
        """
        reading = asyncio.ensure_future(read)
        reading.add_done_callback(lambda done: done.cancelled() or done.exception())
        await asyncio.wait((reading, self.given_up), return_when=asyncio.FIRST_COMPLETED)
        if self.given_up.done():
            raise GivenUpError(self.given_up.result())
        return reading.result()


@dataclass(eq=False)
class IncomingMessages:
    """Reads at most one long message per caller at a time; a newer one replaces the older.

    A caller has one sending thread, so an older message belongs to a lost connection. Messages
    that still arrive are never delayed: that would change the duration of a transfer.

    Attributes:
        stalled_seconds: an active caller sends a piece within this time.
        max_stalled_bytes: see ``MAX_STALLED_BYTES``.
    """

    stalled_seconds: float
    max_stalled_bytes: int = MAX_STALLED_BYTES
    _messages: dict[str, IncomingMessage] = field(default_factory=dict)  # by caller

    @contextmanager
    def receive(self, caller: str) -> Iterator[IncomingMessage]:
        """Read a caller's message inside the context."""
        if caller in self._messages:
            self._give_up(caller, f"{caller} started another message")
        future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        message = self._messages[caller] = IncomingMessage(time.monotonic(), future)
        try:
            yield message
        finally:
            if self._messages.get(caller) is message:
                del self._messages[caller]

    def arrived(self, message: IncomingMessage, length: int) -> None:
        """Record a piece; if all messages together hold too much, give up stalled ones."""
        now = message.last = time.monotonic()
        message.held_bytes += length
        held = sum(each.held_bytes for each in self._messages.values())
        if held <= self.max_stalled_bytes:
            return
        for caller, each in sorted(self._messages.items(), key=lambda item: item[1].last):
            if held <= self.max_stalled_bytes or now - each.last < self.stalled_seconds:
                return
            held -= each.held_bytes
            self._give_up(caller, f"no piece of the message arrived for {now - each.last:.0f} s")

    def _give_up(self, caller: str, reason: str) -> None:
        self._messages.pop(caller).given_up.set_result(reason)
