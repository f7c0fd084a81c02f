"""Long messages in pieces: what they are made of, what is refused, and over a real connection."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from testbed.errors import RejectedError
from testbed.rpc import methods
from testbed.rpc._pb import ps_pb2
from testbed.rpc.client import Connection
from testbed.rpc.limits import LARGEST_WHOLE, MessageLimits
from testbed.rpc.pieces import PIECE_BYTES, Assembly, pieces
from testbed.rpc.service import Call
from testbed.rpc.tokens import token_of
from testbed.rpc.wire import MalformedError, OversizedError

TOKEN = token_of("right", "w3")
MESSAGE = bytes(range(251)) * 10_000  # 2,510,000 bytes: three pieces of a MiB at most


def test_pieces_are_messages_of_the_contract() -> None:
    first, second, third = map(ps_pb2.Piece.FromString, pieces(MESSAGE))
    assert [one.total for one in (first, second, third)] == [2_510_000, 0, 0]
    assert [len(one.data) for one in (first, second)] == 2 * [PIECE_BYTES]
    assert first.data + second.data + third.data == MESSAGE


@pytest.mark.parametrize("message", [b"", b"short", MESSAGE])
def test_a_message_comes_out_as_it_went_in(message: bytes) -> None:
    assembly = Assembly(len(message))
    *before, last = [assembly.add(piece) for piece in pieces(message)]
    assert not any(before)
    assert last
    assert assembly.whole() == message


def piece(total: int = 0, data: bytes = b"") -> bytes:
    return ps_pb2.Piece(total=total, data=data).SerializeToString()


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        ([piece(11, b"x")], "a message of 11 bytes, expected at most 10"),
        ([piece(2**63, b"x")], "expected at most 10"),
        ([piece(4, b"four5")], "a piece of 5 bytes behind 0 of a message of 4"),
        ([piece(4, b"four"), piece(0, b"5")], "a piece of 1 bytes behind 4"),
        ([piece(4, b"fo"), piece()], "a piece of 0 bytes behind 2"),
        ([b"\xff"], "ends inside a number"),
    ],
)
def test_what_is_no_message_is_refused(sent: list[bytes], reason: str) -> None:
    assembly = Assembly(10)
    with pytest.raises((MalformedError, OversizedError), match=reason):
        for one in sent:
            assembly.add(one)


def test_a_message_that_breaks_off_is_refused() -> None:
    assembly = Assembly(10)
    assembly.add(piece(4, b"fo"))
    with pytest.raises(MalformedError, match="the pieces end after 2 bytes"):
        assembly.whole()


def test_a_long_message_over_a_connection(start: Callable[..., Any]) -> None:
    """Both ways; and one that is longer than any of the model's is refused, and counted."""

    async def echo(message: bytes, call: Call) -> bytes:
        return bytes(message)

    limits = MessageLimits(message_bytes=len(MESSAGE), in_pieces=True)
    host, address = start({methods.EXCHANGE: echo, methods.JOIN: echo}, limits=limits)
    with Connection(address, token=TOKEN, limits=limits) as connection:
        assert connection.call(methods.EXCHANGE, MESSAGE) == MESSAGE
        assert connection.call(methods.JOIN, b"short") == b"short"
        with pytest.raises(RejectedError, match="2510001 bytes, expected at most 2510000"):
            connection.call(methods.EXCHANGE, MESSAGE + b"1")
    with (
        Connection(address, token=TOKEN, limits=MessageLimits(len(MESSAGE))) as whole,
        pytest.raises(RejectedError, match="there is no method"),
    ):
        whole.call(methods.EXCHANGE, b"short")
    assert host.gate.counts == {"OK": 2, "RESOURCE_EXHAUSTED": 1, "UNIMPLEMENTED": 1}


def test_only_messages_of_large_models_come_in_pieces() -> None:
    most = int(LARGEST_WHOLE) // 4
    assert not MessageLimits.of(most).in_pieces
    assert MessageLimits.of(most).single_bytes == 8 * most + 65_536
    assert MessageLimits.of(most + 1).in_pieces
    assert MessageLimits.of(138_357_544).single_bytes < 2 * PIECE_BYTES
