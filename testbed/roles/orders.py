"""The streams of orders to workers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from testbed.frame.server import Server
from testbed.rpc.codec import encode_orders


@dataclass
class OrderStreams:
    """The order streams, at most one per worker; the server knows the current orders."""

    server: Server
    _news: dict[int, asyncio.Event] = field(default_factory=dict)  # one per open stream

    async def follow(self, worker: int, after: int) -> AsyncIterator[bytes]:
        """Yield a worker's orders whenever they are newer than number ``after``."""
        self.end(worker)
        news = self._news[worker] = asyncio.Event()
        while self._news.get(worker) is news:
            standing = self.server.standing(worker)
            if standing.number > after:
                after = standing.number
                yield encode_orders(standing)
                continue
            await news.wait()
            news.clear()

    def tell(self, worker: int) -> None:
        """Notify the stream of a worker that its orders have changed."""
        if worker in self._news:
            self._news[worker].set()

    def end(self, *workers: int) -> None:
        """End the streams of these workers, or all streams if none is given."""
        for worker in workers or tuple(self._news):
            news = self._news.pop(worker, None)
            if news is not None:
                news.set()
