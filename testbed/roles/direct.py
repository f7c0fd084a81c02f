"""Records sent directly by their producer, which keeps them until the device commits them.

A device fetches records over its own link, at the link's speed. A device that does not fetch
loses nothing: its records are kept, and when there is no room left the producer waits.
"""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from testbed.datasets.streams import Receiver, Sender
from testbed.errors import RejectedError
from testbed.rpc import methods
from testbed.rpc._pb import ps_pb2
from testbed.rpc.client import Connection
from testbed.rpc.limits import ENVELOPE_BYTES, MessageLimits
from testbed.rpc.service import Call, Gate, ImpersonationError, Refusal, serving
from testbed.rpc.tokens import tokens_of
from testbed.rpc.wire import MalformedError, parse

LOG_BYTES = 64_000_000
"""Total size of a producer's uncommitted records."""

REPLY_BYTES = 1_000_000
"""Maximum size of a reply, except for a single longer record."""

LONGEST_SECONDS = 60.0
"""Longest time that a device may ask to wait."""

DEADLINE_SECONDS = 20.0
"""Deadline of a call in addition to its wait: the time for a full reply on a thin link."""


@dataclass
class _Log:
    """The uncommitted records of one device, in order."""

    records: deque[bytes] = field(default_factory=deque)
    committed: int = 0
    asked: bool = False
    grown: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def last(self) -> int:
        return self.committed + len(self.records)

    def commit(self, sequence: int) -> int:
        """Drop all records up to ``sequence``; return their bytes."""
        freed_bytes = 0
        while self.committed < sequence and self.records:
            freed_bytes += len(self.records.popleft())
            self.committed += 1
        return freed_bytes

    def begin(self, sequence: int) -> int:
        """Handle the device's first request, which has committed ``sequence``; see ``commit``.

        A previous producer may have sent it more records than this one has so far.
        """
        self.asked = True
        freed_bytes = self.commit(sequence)
        self.committed = max(self.committed, sequence)
        return freed_bytes

    def after(self, sequence: int) -> Sequence[bytes]:
        """Return the records after ``sequence`` that fit into a reply."""
        found: list[bytes] = []
        size = 0
        for index in range(sequence - self.committed, len(self.records)):
            size += len(self.records[index])
            if found and size > REPLY_BYTES:
                break
            found.append(self.records[index])
        return found


class DirectSender(Sender):
    """The producer's end, from which devices fetch.

    Args:
        devices: the devices to serve.
        room: bytes of records to keep for all of them together.
    """

    def __init__(self, devices: Iterable[int], *, room: int = LOG_BYTES) -> None:
        self._logs = {device: _Log() for device in devices}
        self._room = room

    @property
    def devices(self) -> Iterable[int]:
        """The devices to serve."""
        return self._logs.keys()

    def send(self, device: int, record: bytes) -> bool:
        """Queue a record; return whether there was room for it."""
        if self._room < len(record):
            return False
        self._room -= len(record)
        log = self._logs[device]
        log.records.append(record)
        log.grown.set()
        return True

    def acknowledged(self, device: int) -> int:
        """Return how many records the device has committed."""
        return self._logs[device].committed

    def available(self, device: int) -> int:
        """Return how many records the device could have fetched."""
        return self._logs[device].last

    async def flush(self) -> None:
        """Do nothing: devices fetch for themselves."""

    async def fetch(self, message: bytes, call: Call) -> bytes:
        """Answer a device's request.

        Raises:
            RejectedError: it asks for records that it has committed or that were never sent.
        """
        request = parse(ps_pb2.FetchRequest, message)
        log = self._logs.get(request.worker)
        if log is None or call.node != f"w{request.worker}":
            raise ImpersonationError(f"{call.node} requested the stream of worker {request.worker}")
        if not log.asked:
            self._room += log.begin(request.committed)
        if not 0 <= request.seconds <= LONGEST_SECONDS:
            found = f"a wait of {request.seconds} s"
            raise MalformedError(f"{found}, expected 0 to {LONGEST_SECONDS:g}")
        after = request.after if request.HasField("after") else log.committed
        if not (request.committed <= after and log.committed <= after <= log.last):
            raise RejectedError(
                f"{call.node} has committed {request.committed} and requested the records after "
                f"{after}; available are {log.committed + 1} to {log.last}"
            )
        self._room += log.commit(request.committed)
        await _grown(log, after + max(1, request.least), request.seconds)
        return ps_pb2.FetchReply(records=log.after(after), first=after + 1).SerializeToString()


async def _grown(log: _Log, least: int, seconds: float) -> None:
    """Wait until a log reaches the sequence number ``least``, at most ``seconds``."""
    try:
        async with asyncio.timeout(seconds):
            while log.last < least:
                log.grown.clear()
                await log.grown.wait()
    except TimeoutError:
        return


@asynccontextmanager
async def answering(
    address: str, sender: DirectSender, *, token: str, failed: Callable[[BaseException], None]
) -> AsyncIterator[int]:
    """Serve devices at an address; their tokens are derived from the producer's.

    Args:
        address: ``address:port``.
        sender: the source of the records.
        token: the producer's token.
        failed: called with an unexpected error.

    Yields:
        The port.

    Raises:
        HostError: the address cannot be used.
    """
    gate = Gate(
        tokens_of(token, (f"w{device}" for device in sender.devices)),
        {methods.FETCH: sender.fetch},
        limits=MessageLimits(ENVELOPE_BYTES),
        refused=_log_refusal,
        failed=failed,
    )
    async with serving(address, gate) as port:
        yield port


def _log_refusal(refusal: Refusal) -> None:
    """Write a refusal to the producer's log."""
    sys.stderr.write(f"{refusal.call.node} ({refusal.call.peer}): {refusal.reason}\n")


class DirectReceiver(Receiver):
    """A device's end; owns its connection."""

    def __init__(self, device: int, connection: Connection) -> None:
        self._device = device
        self._connection = connection
        self._came: int | None = None  # sequence number of the last record; None: unknown
        self._committed = 0
        self.begins_after = 0

    def poll(self, least: int, seconds: float) -> Sequence[bytes]:
        """Fetch the next records, waiting up to ``seconds`` for ``least`` of them."""
        request = ps_pb2.FetchRequest(
            worker=self._device, after=self._came, committed=self._committed
        )
        request.least, request.seconds = least, seconds
        data = self._connection.call(
            methods.FETCH,
            request.SerializeToString(),
            deadline_seconds=seconds + DEADLINE_SECONDS,
        )
        reply = parse(ps_pb2.FetchReply, data)
        if self._came is None:
            self.begins_after = reply.first - 1
        self._came = reply.first + len(reply.records) - 1
        return reply.records

    def commit(self) -> None:
        """Mark the received records as committed; the next poll sends this."""
        self._committed = self._came or 0

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()
