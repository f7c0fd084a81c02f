"""What unfinished long messages hold of a server's memory, those of all callers together."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

MOST_STALLED_BYTES = 256 * 2**20
"""Above this, messages that no longer arrive are given up, those that have waited longest first."""


class GivenUpError(Exception):
    """A message that is read no further; its caller may send it again."""


@dataclass(eq=False)
class Intake:
    """A message that is being read.

    Attributes:
        last: when its last piece arrived, in steady seconds.
        given_up: why it is read no further, once it is.
        held_bytes: what has arrived.
    """

    last: float
    given_up: asyncio.Future[str]
    held_bytes: int = 0

    async def next(self, read: Coroutine[Any, Any, Any]) -> Any:
        """The next piece.

        A read is never cancelled, as gRPC would not free what it still brings: the end of its call
        ends it.

        Raises:
            GivenUpError: the message is read no further.
        """
        reading = asyncio.ensure_future(read)
        reading.add_done_callback(lambda done: done.cancelled() or done.exception())
        await asyncio.wait((reading, self.given_up), return_when=asyncio.FIRST_COMPLETED)
        if self.given_up.done():
            raise GivenUpError(self.given_up.result())
        return reading.result()


@dataclass(eq=False)
class Room:
    """Reads at most one long message of each caller at a time: of two, the newer counts.

    A caller has one thread that sends, so an older message stands on a connection that is lost.
    Messages that still arrive are never held up: that would change the times of a transfer.

    Attributes:
        stalled_seconds: a caller that is there sends a piece within this time.
        most_stalled_bytes: see ``MOST_STALLED_BYTES``.
    """

    stalled_seconds: float
    most_stalled_bytes: int = MOST_STALLED_BYTES
    _intakes: dict[str, Intake] = field(default_factory=dict)  # by caller

    @contextmanager
    def intake(self, caller: str) -> Iterator[Intake]:
        """Read a caller's message inside the context."""
        if caller in self._intakes:
            self._give_up(caller, f"{caller} has begun another message")
        future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        intake = self._intakes[caller] = Intake(time.monotonic(), future)
        try:
            yield intake
        finally:
            if self._intakes.get(caller) is intake:
                del self._intakes[caller]

    def arrived(self, intake: Intake, length: int) -> None:
        """A piece of a message has arrived: where all hold too much, give up stalled ones."""
        now = intake.last = time.monotonic()
        intake.held_bytes += length
        held = sum(each.held_bytes for each in self._intakes.values())
        if held <= self.most_stalled_bytes:
            return
        for caller, each in sorted(self._intakes.items(), key=lambda item: item[1].last):
            if held <= self.most_stalled_bytes or now - each.last < self.stalled_seconds:
                return
            held -= each.held_bytes
            self._give_up(caller, f"no piece of it has arrived for {now - each.last:.0f} s")

    def _give_up(self, caller: str, reason: str) -> None:
        self._intakes.pop(caller).given_up.set_result(reason)
