"""Records from a producer's process to devices over real sockets: complete and in order."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from testbed.errors import NodeError, RejectedError
from testbed.roles.direct import DirectReceiver, DirectSender, answering
from testbed.rpc.client import Connection
from testbed.rpc.limits import ENVELOPE_BYTES, MessageLimits
from testbed.rpc.tokens import token_of

TOKEN = token_of("secret", "producer0")
LIMITS = MessageLimits(ENVELOPE_BYTES)
RECORDS = [f"record {number}".encode() for number in range(1, 8)]


class Served:
    """A sender that answers in a thread, as its process does."""

    def __init__(self, loop: asyncio.AbstractEventLoop, sender: DirectSender, port: int) -> None:
        self.loop, self.sender, self.port = loop, sender, port

    def send(self, device: int, record: bytes) -> bool:
        done = asyncio.run_coroutine_threadsafe(self._send(device, record), self.loop)
        return done.result(10)

    async def _send(self, device: int, record: bytes) -> bool:
        return self.sender.send(device, record)

    def receiver(self, device: int, *, name: str = "", token: str = TOKEN) -> DirectReceiver:
        shown = token_of(token, name or f"w{device}")
        address = f"127.0.0.1:{self.port}"
        connection = Connection(
            address, token=shown, limits=LIMITS, patience_seconds=0.0, peer="the producer"
        )
        return DirectReceiver(device, connection)


@contextmanager
def serving(*devices: int, room: int = 10_000) -> Iterator[Served]:
    ready, over = threading.Event(), threading.Event()
    made: list[Served] = []
    failures: list[BaseException] = []

    async def serve() -> None:
        sender = DirectSender(devices, room=room)
        where = "127.0.0.1:0"
        async with answering(where, sender, token=TOKEN, failed=failures.append) as port:
            made.append(Served(asyncio.get_running_loop(), sender, port))
            ready.set()
            await asyncio.to_thread(over.wait)

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    assert ready.wait(20)
    try:
        yield made[0]
    finally:
        over.set()
        thread.join()
    assert failures == []


def test_every_record_arrives_once_and_in_order() -> None:
    with serving(0, 1) as served:
        assert all(served.send(0, record) for record in RECORDS)
        served.send(1, b"another's")
        first, other = served.receiver(0), served.receiver(1)
        assert list(first.poll(3, 5.0)) == RECORDS
        assert list(other.poll(1, 5.0)) == [b"another's"]
        assert list(first.poll(1, 0.0)) == []
        served.send(0, b"the eighth")
        assert list(first.poll(1, 5.0)) == [b"the eighth"]


def test_a_poll_waits_for_the_requested_number() -> None:
    with serving(0) as served:
        receiver, found = served.receiver(0), []
        waiting = threading.Thread(target=lambda: found.extend(receiver.poll(3, 20.0)))
        waiting.start()
        for record in RECORDS[:3]:
            assert found == []  # two were not enough
            served.send(0, record)
        waiting.join()
        assert found == RECORDS[:3]


def test_uncommitted_records_are_sent_again_to_a_new_process() -> None:
    with serving(0) as served:
        for record in RECORDS:
            served.send(0, record)
        receiver = served.receiver(0)
        assert len(receiver.poll(7, 5.0)) == 7
        again = served.receiver(0)  # the previous process died before buffering them
        assert list(again.poll(7, 5.0)) == RECORDS
        again.commit()
        assert served.sender.acknowledged(0) == 0  # the next poll says so
        assert list(again.poll(1, 0.0)) == []
        assert served.sender.acknowledged(0) == 7
        assert list(served.receiver(0).poll(1, 0.0)) == []


def test_an_absent_device_loses_nothing_and_blocks_its_producer() -> None:
    """Room for 20 bytes: two records of 8; the third has to wait for a commit."""
    with serving(0, room=20) as served:
        assert [served.send(0, record) for record in RECORDS[:3]] == [True, True, False]
        receiver = served.receiver(0)
        assert list(receiver.poll(1, 5.0)) == RECORDS[:2]
        assert not served.send(0, RECORDS[2])  # they arrived, and were not committed
        receiver.commit()
        receiver.poll(1, 0.0)
        assert served.send(0, RECORDS[2])
        assert list(receiver.poll(1, 5.0)) == RECORDS[2:3]


def test_a_device_cannot_fetch_records_of_another() -> None:
    with serving(0, 1) as served:
        for receiver, code in (
            (served.receiver(0, name="w1"), "PERMISSION_DENIED"),
            (served.receiver(2), "UNAUTHENTICATED"),
            (served.receiver(0, token=token_of("secret", "producer1")), "UNAUTHENTICATED"),
        ):
            with pytest.raises(RejectedError, match=f"the producer refused Fetch: .*{code}"):
                receiver.poll(1, 0.0)


def test_committed_records_cannot_be_fetched_again() -> None:
    with serving(0) as served:
        served.send(0, RECORDS[0])
        old, new = served.receiver(0), served.receiver(0)
        old.poll(1, 5.0)
        new.poll(1, 5.0)
        new.commit()
        new.poll(1, 0.0)
        served.send(0, RECORDS[1])
        assert list(old.poll(1, 5.0)) == RECORDS[1:2]  # it had the first
        with pytest.raises(
            RejectedError, match="requested the records after 5; available are 2 to 2"
        ):
            _skip(old, 5)


def test_a_new_producer_continues_where_the_device_is() -> None:
    """The device committed 7 records of the previous process; the new one resent 2 or none."""
    with serving(0, 1) as served:
        for device, made in ((0, RECORDS[:2]), (1, RECORDS[:0])):
            assert all(served.send(device, record) for record in made)
            receiver = served.receiver(device)
            receiver._came = receiver._committed = 7
            assert list(receiver.poll(1, 0.0)) == []
            assert served.sender.acknowledged(device) == 7  # production continues from there
            served.send(device, b"the eighth")
            assert list(receiver.poll(1, 5.0)) == [b"the eighth"]
        assert served.sender._room == 10_000 - 2 * len(b"the eighth")


def _skip(receiver: DirectReceiver, after: int) -> None:
    receiver._came = after
    receiver.poll(1, 0.0)


def test_a_dead_producer_is_reported() -> None:
    with serving(0) as served:
        receiver = served.receiver(0)
    with pytest.raises(NodeError, match="the producer has not answered"):
        receiver.poll(1, 0.0)
