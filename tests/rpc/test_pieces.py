"""Long messages in chunks: their contents, refusals, and a real connection."""

from __future__ import annotations

import gc
import resource
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest
from polling import wait_until

from testbed.errors import RejectedError
from testbed.rpc import methods
from testbed.rpc.client import Connection
from testbed.rpc.limits import LARGEST_WHOLE, MessageLimits
from testbed.rpc.methods import TOKEN_KEY
from testbed.rpc.pieces import PIECE_BYTES, Assembly, pieces
from testbed.rpc.service import Call
from testbed.rpc.tokens import token_of
from testbed.rpc.wire import MalformedError, OversizedError

TOKEN = token_of("right", "w3")
MESSAGE = bytes(range(251)) * 10_000  # 2,510,000 bytes: three pieces of a MiB at most


def test_the_first_piece_begins_with_the_length() -> None:
    first, second, third = pieces(MESSAGE)
    assert first[:8] == bytes.fromhex("b04c260000000000")  # 2,510,000
    assert [len(first) - 8, len(second)] == 2 * [PIECE_BYTES]
    assert first[8:] + second + third == MESSAGE


@pytest.mark.parametrize("message", [b"", b"short", MESSAGE])
def test_a_message_survives_a_round_trip(message: bytes) -> None:
    assembly = Assembly(len(message))
    *before, last = [assembly.add(piece) for piece in pieces(message)]
    assert not any(before)
    assert last
    assert bytes(assembly.whole()) == message


def first(total: int, data: bytes) -> bytes:
    return total.to_bytes(8, "little") + data


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        ([first(11, b"x")], "a message of 11 bytes, expected at most 10"),
        ([first(2**63, b"x")], "expected at most 10"),
        ([first(4, b"four5")], "a piece of 5 bytes after 0 of a message of 4"),
        ([first(4, b"four"), b"5"], "a piece of 1 bytes after 4"),
        ([first(4, b"fo"), b""], "a piece of 0 bytes after 2"),
        ([b"\xff"], "a first piece of 1 bytes, without a length"),
    ],
)
def test_invalid_chunks_are_refused(sent: list[bytes], reason: str) -> None:
    assembly = Assembly(10)
    with pytest.raises((MalformedError, OversizedError), match=reason):
        for one in sent:
            assembly.add(one)


def test_an_incomplete_message_is_refused() -> None:
    assembly = Assembly(10)
    assembly.add(first(4, b"fo"))
    with pytest.raises(MalformedError, match="the pieces end after 2 bytes, too early"):
        assembly.whole()


def test_a_long_message_over_a_connection(start: Callable[..., Any]) -> None:
    """Both ways; a message longer than the model's is refused, and counted."""

    async def echo(message: bytes, call: Call) -> bytes:
        return bytes(message)

    limits = MessageLimits(message_bytes=len(MESSAGE), in_pieces=True)
    host, address = start({methods.EXCHANGE: echo, methods.JOIN: echo}, limits=limits)
    with Connection(address, token=TOKEN, limits=limits) as connection:
        assert bytes(connection.call(methods.EXCHANGE, MESSAGE)) == MESSAGE
        assert connection.call(methods.JOIN, b"short") == b"short"
        with pytest.raises(RejectedError, match="2510001 bytes, expected at most 2510000"):
            connection.call(methods.EXCHANGE, MESSAGE + b"1")
    with (
        Connection(address, token=TOKEN, limits=MessageLimits(len(MESSAGE))) as whole,
        pytest.raises(RejectedError, match="unknown method"),
    ):
        whole.call(methods.EXCHANGE, b"short")
    assert host.gate.counts == {"OK": 2, "RESOURCE_EXHAUSTED": 1, "UNIMPLEMENTED": 1}


def test_only_messages_of_large_models_are_chunked() -> None:
    most = int(LARGEST_WHOLE) // 4
    assert not MessageLimits.of(most).in_pieces
    assert MessageLimits.of(most).single_bytes == 8 * most + 65_536
    assert MessageLimits.of(most + 1).in_pieces
    assert MessageLimits.of(138_357_544).single_bytes < 2 * PIECE_BYTES


LONG = MessageLimits(message_bytes=3 * PIECE_BYTES, in_pieces=True)


class Sender:
    """A client that sends some chunks of a message, and nothing more until it is released."""

    def __init__(self, address: str, pieces_sent: int) -> None:
        self._release = threading.Event()
        self._channel = grpc.insecure_channel(address, [("grpc.use_local_subchannel_pool", 1)])
        method = methods.IN_PIECES[methods.EXCHANGE]
        self.call = self._channel.stream_stream(method, None, None)(
            self._pieces(pieces_sent), metadata=((TOKEN_KEY, TOKEN),)
        )

    def _pieces(self, count: int) -> Iterator[bytes]:
        yield from list(pieces(bytes(3 * PIECE_BYTES)))[:count]
        self._release.wait(20)

    def __enter__(self) -> Sender:
        return self

    def __exit__(self, *_: object) -> None:
        self._release.set()
        self._channel.close()


async def length(message: bytes, call: Call) -> bytes:
    """Answers with the length of a message."""
    return str(len(message)).encode()


def test_memory_is_allocated_as_chunks_arrive() -> None:
    """One chunk of a MiB of a message of 512: one MiB is allocated, not 512."""
    assembly = Assembly(2**29)
    before = resident_bytes()
    assembly.add(first(2**29, bytes(PIECE_BYTES)))
    assert resident_bytes() - before < 8 * PIECE_BYTES


def resident_bytes() -> int:
    """The memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def test_a_newer_message_of_a_caller_replaces_the_older_one(start: Callable[..., Any]) -> None:
    """Half a message is on a connection that may be lost: the next does not wait for it."""
    host, address = start({methods.EXCHANGE: length}, limits=LONG)
    with Sender(address, 2) as first, Connection(address, token=TOKEN, limits=LONG) as connection:
        wait_until(lambda: len(open_messages(host)) == 1)
        assert connection.call(methods.EXCHANGE, bytes(3 * PIECE_BYTES)) == b"3145728"
        assert first.call.code() is grpc.StatusCode.UNAVAILABLE
        assert first.call.details() == "w3 started another message"
    assert open_messages(host) == []
    assert host.gate.counts == {"OK": 1, "INCOMPLETE": 1}
    assert [one.reason for one in host.refusals] == ["w3 started another message"]


def test_an_abandoned_message_is_sent_again(start: Callable[..., Any]) -> None:
    """Two clients with one token: the displaced one retries, and both are answered."""
    host, address = start({methods.EXCHANGE: length}, limits=LONG)
    with (
        Connection(address, token=TOKEN, limits=LONG) as connection,
        Sender(address, 1),
        ThreadPoolExecutor(2) as pool,
    ):
        message = bytes(3 * PIECE_BYTES)
        calls = [pool.submit(connection.call, methods.EXCHANGE, message) for _ in range(2)]
        assert [one.result(20) for one in calls] == [b"3145728"] * 2
    assert host.gate.counts["OK"] == 2


def open_messages(host: Any) -> list[Any]:
    """Those that are being read."""
    callers = host.gate._callers.values()
    return [one.message for one in callers if one.message is not None]


def test_a_refused_message_is_freed_at_once(start: Callable[..., Any]) -> None:
    """gRPC keeps the error of a call in a cycle, which would otherwise keep the message."""
    kept: list[weakref.ref[Any]] = []

    class Message(bytearray):
        """A message that supports weak references."""

    async def refuse(message: bytes, call: Call) -> bytes:
        held = Message(message)
        kept.append(weakref.ref(held))
        raise MalformedError("no")

    host, address = start({methods.EXCHANGE: refuse}, limits=LONG)
    gc.disable()
    try:
        with Connection(address, token=TOKEN, limits=LONG) as connection:
            with pytest.raises(RejectedError, match="no"):
                connection.call(methods.EXCHANGE, bytes(2 * PIECE_BYTES))
            with pytest.raises(RejectedError, match="no"):
                connection.call(methods.EXCHANGE, bytes(2 * PIECE_BYTES))
        wait_until(lambda: [one() for one in kept] == [None, None])
    finally:
        gc.enable()
    assert host.failures == []
