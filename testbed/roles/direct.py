"""Records straight from their producer: it keeps what was sent until the device has committed it.

A device fetches what comes next over its own link, as fast as that carries. One that does not come
for its records loses nothing: they stay here, and once there is no room the producer waits.
"""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from testbed.errors import RejectedError
from testbed.rpc import methods
from testbed.rpc._pb import ps_pb2
from testbed.rpc.client import Connection
from testbed.rpc.codec import parse
from testbed.rpc.limits import ENVELOPE_BYTES, MessageLimits
from testbed.rpc.service import Call, Gate, ImpersonationError, Refusal, serving
from testbed.rpc.tokens import tokens_of
from testbed.rpc.wire import MalformedError
from testbed.streams import Receiver, Sender

LOG_BYTES = 64_000_000
"""Room for what no device of a producer has committed."""

REPLY_BYTES = 1_000_000
"""A reply has no more, but for one record that is longer."""

LONGEST_SECONDS = 60.0
"""For so long a device may ask to be kept waiting."""

DEADLINE_SECONDS = 20.0
"""Of a call, beside the time that it is to wait: what a thin link takes for a whole reply."""


@dataclass
class _Log:
    """The records of one device that it has not committed, in their order."""

    records: deque[bytes] = field(default_factory=deque)
    committed: int = 0
    asked: bool = False
    grown: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def last(self) -> int:
        return self.committed + len(self.records)

    def commit(self, sequence: int) -> int:
        """The device has all up to ``sequence``; returns the bytes of those let go."""
        let_go = 0
        while self.committed < sequence and self.records:
            let_go += len(self.records.popleft())
            self.committed += 1
        return let_go

    def begin(self, sequence: int) -> int:
        """The device asks for the first time, and has committed that; see ``commit``.

        It may have had more of a process that this one follows than there is here as yet.
        """
        self.asked = True
        let_go = self.commit(sequence)
        self.committed = max(self.committed, sequence)
        return let_go

    def after(self, sequence: int) -> Sequence[bytes]:
        """The records behind that one, as many as a reply takes."""
        found: list[bytes] = []
        size = 0
        for index in range(sequence - self.committed, len(self.records)):
            size += len(self.records[index])
            if found and size > REPLY_BYTES:
                break
            found.append(self.records[index])
        return found


class DirectSender(Sender):
    """The producer's end, which the devices ask.

    Args:
        devices: those whose streams it sends.
        room: bytes that it keeps for all of them together.
    """

    def __init__(self, devices: Iterable[int], *, room: int = LOG_BYTES) -> None:
        self._logs = {device: _Log() for device in devices}
        self._room = room

    @property
    def devices(self) -> Iterable[int]:
        """Those whose streams it sends."""
        return self._logs.keys()

    def send(self, device: int, record: bytes) -> bool:
        """See Sender."""
        if self._room < len(record):
            return False
        self._room -= len(record)
        log = self._logs[device]
        log.records.append(record)
        log.grown.set()
        return True

    def acknowledged(self, device: int) -> int:
        """See Sender."""
        return self._logs[device].committed

    def available(self, device: int) -> int:
        """See Sender."""
        return self._logs[device].last

    async def flush(self) -> None:
        """See Sender: the devices fetch what they want."""

    async def fetch(self, message: bytes, call: Call) -> bytes:
        """Answer a device.

        Raises:
            RejectedError: it asks for what it has committed, or for what was never sent.
        """
        request = parse(ps_pb2.FetchRequest, message)
        log = self._logs.get(request.worker)
        if log is None or call.node != f"w{request.worker}":
            raise ImpersonationError(f"{call.node} fetches the stream of worker {request.worker}")
        if not log.asked:
            self._room += log.begin(request.committed)
        if not 0 <= request.seconds <= LONGEST_SECONDS:
            found = f"{request.seconds} s to wait"
            raise MalformedError(f"{found}, expected 0 to {LONGEST_SECONDS:g}")
        after = request.after if request.HasField("after") else log.committed
        if not (request.committed <= after and log.committed <= after <= log.last):
            raise RejectedError(
                f"{call.node} has committed {request.committed} and wants what comes after {after}:"
                f" there are {log.committed + 1} to {log.last}"
            )
        self._room += log.commit(request.committed)
        await _grown(log, after + max(1, request.least), request.seconds)
        return ps_pb2.FetchReply(records=log.after(after), first=after + 1).SerializeToString()


async def _grown(log: _Log, least: int, seconds: float) -> None:
    """Wait until a log has come to a sequence number, but no longer than that."""
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
    """Answer the devices at an address, by the tokens that are made of the producer's own.

    Args:
        address: ``address:port``.
        sender: has the records.
        token: the producer's.
        failed: told of an error nobody foresaw.

    Yields:
        The port.

    Raises:
        HostError: nothing can listen there.
    """
    gate = Gate(
        tokens_of(token, (f"w{device}" for device in sender.devices)),
        {methods.FETCH: sender.fetch},
        limits=MessageLimits(ENVELOPE_BYTES),
        refused=_tell,
        failed=failed,
    )
    async with serving(address, gate) as port:
        yield port


def _tell(refusal: Refusal) -> None:
    """Have a refusal in the producer's log."""
    sys.stderr.write(f"{refusal.call.node} ({refusal.call.peer}): {refusal.reason}\n")


class DirectReceiver(Receiver):
    """A device's end; the connection is its own."""

    def __init__(self, device: int, connection: Connection) -> None:
        self._device = device
        self._connection = connection
        self._came: int | None = None  # sequence number of the last record; None: not known
        self._committed = 0

    def poll(self, least: int, seconds: float) -> Sequence[bytes]:
        """See Receiver."""
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
        self._came = reply.first + len(reply.records) - 1
        return reply.records

    def commit(self) -> None:
        """See Receiver: the next poll says so."""
        self._committed = self._came or 0

    def close(self) -> None:
        """See Receiver."""
        self._connection.close()
