"""The streams of orders to workers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from testbed.algorithms.frame.server import Server
from testbed.rpc.codec import encode_orders


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
