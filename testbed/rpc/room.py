"""The memory of unfinished long messages in a server, for all callers together."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

MOST_STALLED_BYTES = 256 * 2**20
"""Above this, stalled messages are given up, those that have waited longest first."""


class GivenUpError(Exception):
    """The server stops reading a message; its caller may send it again."""


@dataclass(eq=False)
class Intake:
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
class Room:
    """Reads at most one long message per caller at a time; a newer one replaces the older.

    A caller has one sending thread, so an older message belongs to a lost connection. Messages
    that still arrive are never delayed: that would change the duration of a transfer.

    Attributes:
        stalled_seconds: an active caller sends a piece within this time.
        most_stalled_bytes: see ``MOST_STALLED_BYTES``.
    """

    stalled_seconds: float
    most_stalled_bytes: int = MOST_STALLED_BYTES
    _intakes: dict[str, Intake] = field(default_factory=dict)  # by caller

    @contextmanager
    def intake(self, caller: str) -> Iterator[Intake]:
        """Read a caller's message inside the context."""
        if caller in self._intakes:
            self._give_up(caller, f"{caller} started another message")
        future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        intake = self._intakes[caller] = Intake(time.monotonic(), future)
        try:
            yield intake
        finally:
            if self._intakes.get(caller) is intake:
                del self._intakes[caller]

    def arrived(self, intake: Intake, length: int) -> None:
        """Record a piece; if all messages together hold too much, give up stalled ones."""
        now = intake.last = time.monotonic()
        intake.held_bytes += length
        held = sum(each.held_bytes for each in self._intakes.values())
        if held <= self.most_stalled_bytes:
            return
        for caller, each in sorted(self._intakes.items(), key=lambda item: item[1].last):
            if held <= self.most_stalled_bytes or now - each.last < self.stalled_seconds:
                return
            held -= each.held_bytes
            self._give_up(caller, f"no piece of the message arrived for {now - each.last:.0f} s")

    def _give_up(self, caller: str, reason: str) -> None:
        self._intakes.pop(caller).given_up.set_result(reason)
