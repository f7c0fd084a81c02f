"""The workers' calls that wait for their replies, at most one per worker."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from testbed.rpc.service import SupersededError


@dataclass(frozen=True, eq=False)
class WaitingCall:
    """A waiting call.

    Attributes:
        since: when it arrived, on the steady clock.
        answer: the bytes of its reply, set later.
    """

    since: float
    answer: asyncio.Future[bytes] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )


class WaitingCalls:
    """The waiting calls, by worker."""

    def __init__(self) -> None:
        self._calls: dict[int, WaitingCall] = {}

    def __len__(self) -> int:
        return len(self._calls)

    @contextmanager
    def wait(self, worker: int, since: float) -> Iterator[asyncio.Future[bytes]]:
        """Register a worker's call and yield its answer; replaces an older waiting call."""
        self.supersede(worker)
        call = self._calls[worker] = WaitingCall(since)
        try:
            yield call.answer
        finally:
            if self._calls.get(worker) is call:
                del self._calls[worker]

    def take(self, worker: int) -> WaitingCall | None:
        """Remove and return the call of a worker to answer now; None if its connection is lost."""
        call = self._calls.pop(worker, None)
        return None if call is None or call.answer.done() else call

    def supersede(self, worker: int) -> None:
        """Cancel a worker's waiting call, because the worker has made a newer call or left."""
        older = self._calls.pop(worker, None)
        if older is not None and not older.answer.done():
            older.answer.set_exception(SupersededError(f"worker {worker} called again or left"))
            older.answer.exception()  # mark as retrieved, even if no caller waits for it any more
