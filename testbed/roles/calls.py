"""The workers' calls that wait for their replies, one of each worker at most."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from testbed.rpc.service import SupersededError


@dataclass(frozen=True, eq=False)
class WaitingCall:
    """A call that waits.

    Attributes:
        since: when it came, on the steady clock.
        answer: the bytes of its reply, to be set.
    """

    since: float
    answer: asyncio.Future[bytes] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )


class WaitingCalls:
    """All of them, by worker."""

    def __init__(self) -> None:
        self._calls: dict[int, WaitingCall] = {}

    def __len__(self) -> int:
        return len(self._calls)

    @contextmanager
    def wait(self, worker: int, since: float) -> Iterator[asyncio.Future[bytes]]:
        """The answer to a worker's call, which takes the place of an older one that still waits."""
        self.supersede(worker)
        call = self._calls[worker] = WaitingCall(since)
        try:
            yield call.answer
        finally:
            if self._calls.get(worker) is call:
                del self._calls[worker]

    def take(self, worker: int) -> WaitingCall | None:
        """The call of a worker that is to be answered now; None if its connection is lost."""
        call = self._calls.pop(worker, None)
        return None if call is None or call.answer.done() else call

    def supersede(self, worker: int) -> None:
        """A worker has called again or left: what waits of it is over."""
        older = self._calls.pop(worker, None)
        if older is not None and not older.answer.done():
            older.answer.set_exception(SupersededError(f"worker {worker} has called again or left"))
            older.answer.exception()  # seen, even if nobody waits for the answer any more
