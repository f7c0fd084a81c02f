"""Reads what programs serve at /metrics, inside their network namespaces, without waiting.

Every call continues the transfers as far as they go now. So no endpoint delays the agent, whatever
it sends: a transfer is bounded in time and in bytes. It uses the node's loopback interface, and so
takes nothing of the node's link, and is not counted with it.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

LOOPBACK = "127.0.0.1"
REQUEST = (
    "GET /metrics HTTP/1.0\r\nHost: localhost:{port}\r\n"
    "Accept: text/plain;version=0.0.4\r\nUser-Agent: testbed\r\n\r\n"
)
"""HTTP/1.0: the end of the connection is that of the reply, which is not divided into chunks."""

LONGEST_SECONDS = 2.0
MOST_BYTES = 2**18
MOST_TAKEN_BYTES = 2**20
"""Bytes of replies that one call returns; control characters take six times as much in JSON."""

CHUNK_BYTES = 2**16


class Endpoint(NamedTuple):
    """Where a node serves metrics."""

    node: str
    port: int


class Scraped(NamedTuple):
    """The reply of an endpoint, or why there is none."""

    endpoint: Endpoint
    reply: str = ""
    failure: str = ""


@dataclass
class _Transfer:
    """A request that is not answered completely yet."""

    peer: socket.socket
    unsent: bytes
    deadline: float
    received: bytearray = field(default_factory=bytearray)

    def proceed(self) -> bool:
        """Send and receive what is possible now; return whether the reply is complete.

        Raises:
            OSError: the connection failed, for example because no process listens.
            ValueError: the reply is too long.
        """
        with suppress(BlockingIOError):
            while self.unsent:
                self.unsent = self.unsent[self.peer.send(self.unsent) :]
            while chunk := self.peer.recv(CHUNK_BYTES):
                self.received += chunk
                if len(self.received) > MOST_BYTES:
                    raise ValueError(f"it answered with more than {MOST_BYTES:,} bytes")
            return True
        return False


class Scrapes:
    """The transfers in progress, at most one of each endpoint.

    Args:
        connect: returns a new TCP socket in a node's network namespace.
        clock: returns monotonic seconds.
    """

    def __init__(
        self,
        connect: Callable[[str], socket.socket],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._connect = connect
        self._clock = clock
        self._transfers: dict[Endpoint, _Transfer] = {}
        self._done: list[Scraped] = []

    def proceed(self, wanted: Iterable[Endpoint]) -> list[Scraped]:
        """Begin to read these endpoints, unless that is in progress; return what is complete."""
        for endpoint in wanted:
            if endpoint not in self._transfers:
                self._begin(endpoint)
        for endpoint in list(self._transfers):
            self._proceed(endpoint)
        taken, size = 0, 0
        for one in self._done:
            size += len(one.reply)
            if taken and size > MOST_TAKEN_BYTES:
                break
            taken += 1
        found, self._done = self._done[:taken], self._done[taken:]
        return found

    def _begin(self, endpoint: Endpoint) -> None:
        try:
            peer = self._connect(endpoint.node)
            peer.setblocking(False)
            with suppress(BlockingIOError):
                peer.connect((LOOPBACK, endpoint.port))
        except OSError as error:
            self._done.append(Scraped(endpoint, failure=_explain(error)))
            return
        request = REQUEST.format(port=endpoint.port).encode()
        self._transfers[endpoint] = _Transfer(peer, request, self._clock() + LONGEST_SECONDS)

    def _proceed(self, endpoint: Endpoint) -> None:
        transfer = self._transfers[endpoint]
        failure = ""
        try:
            complete = transfer.proceed()
        except OSError as error:
            complete, failure = True, _explain(error)
        except ValueError as error:
            complete, failure = True, str(error)
        if not complete and self._clock() > transfer.deadline:
            complete, failure = True, f"it did not answer completely within {LONGEST_SECONDS:g} s"
        if not complete:
            return
        transfer.peer.close()
        del self._transfers[endpoint]
        reply = "" if failure else transfer.received.decode(errors="replace")
        self._done.append(Scraped(endpoint, reply, failure))


def _explain(error: OSError) -> str:
    if isinstance(error, ConnectionRefusedError):
        return "nothing listens there"
    return f"the connection failed: {error.strerror}"
