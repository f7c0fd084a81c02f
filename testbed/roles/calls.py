"""What workers wait for: replies to their calls, and orders; at most one of each per worker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from testbed.algorithms.frame.server import Server
from testbed.rpc.codec import encode_orders
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

    def __iter__(self) -> Iterator[int]:
        """Iterate over the workers."""
        return iter(self._calls)

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


@dataclass
class OrderStreams:
    """The order streams, at most one per worker; the server knows the current orders."""

    server: Server
    _changed: dict[int, asyncio.Event] = field(default_factory=dict)  # one per open stream

    async def follow(self, worker: int, after: int) -> AsyncIterator[bytes]:
        """Yield a worker's orders whenever they are newer than number ``after``."""
        self.end(worker)
        changed = self._changed[worker] = asyncio.Event()
        while self._changed.get(worker) is changed:
            standing = self.server.standing(worker)
            if standing.number > after:
                after = standing.number
                yield encode_orders(standing)
                continue
            await changed.wait()
            changed.clear()

    def notify(self, worker: int) -> None:
        """Notify the stream of a worker that its orders have changed."""
        if worker in self._changed:
            self._changed[worker].set()

    def end(self, *workers: int) -> None:
        """End the streams of these workers, or all streams if none is given."""
        for worker in workers or tuple(self._changed):
            changed = self._changed.pop(worker, None)
            if changed is not None:
                changed.set()
