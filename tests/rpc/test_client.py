"""Repeated calls after a lost connection, and timeouts."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from testbed.errors import HostError, NodeError, RejectedError
from testbed.rpc.client import Connection
from testbed.rpc.limits import MessageLimits
from testbed.rpc.service import Call
from testbed.rpc.tokens import token_of

METHOD = "/testbed.v1.ParameterServer/Pull"
LIMITS = MessageLimits(message_bytes=1000)

Start = Callable[..., tuple[Any, str]]


class HandClock:
    """Time that passes only during pauses, or by a jump at the n-th reading."""

    def __init__(self, jumps: Mapping[int, float] | None = None) -> None:
        self.now = 0.0
        self.pauses: list[float] = []
        self._jumps = jumps or {}
        self._reads = 0

    def __call__(self) -> float:
        self._reads += 1
        self.now += self._jumps.get(self._reads, 0.0)
        return self.now

    def pause(self, seconds: float) -> None:
        """Let time pass."""
        self.pauses.append(seconds)
        self.now += seconds


def connect(address: str, clock: HandClock, *, patience_seconds: float = 5.0) -> Connection:
    """A connection whose waits take no real time."""
    return Connection(
        address,
        token=token_of("right", "w3"),
        limits=LIMITS,
        patience_seconds=patience_seconds,
        clock=clock,
        pause=clock.pause,
    )


@pytest.fixture
def no_server() -> str:
    """An address without a listener."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        return f"ipv4:127.0.0.1:{unused.getsockname()[1]}"


def test_an_absent_server_is_called_with_growing_pauses(no_server: str) -> None:
    clock = HandClock()
    with connect(no_server, clock) as connection, pytest.raises(NodeError) as caught:
        connection.call(METHOD, b"")
    assert clock.pauses == [0.05, 0.1, 0.2, 0.4, 0.8, 1.6]  # 2 s more would exceed 5
    assert f"{no_server}: the parameter server has not answered for 3 s" in str(caught.value)
    assert caught.value.exit_code == 5


def test_without_patience_there_is_one_attempt(no_server: str) -> None:
    clock = HandClock()
    with connect(no_server, clock) as connection, pytest.raises(NodeError):
        connection.call(METHOD, b"", patience_seconds=0.0)
    assert clock.pauses == []


def test_a_call_is_repeated_unchanged_until_it_is_answered(start: Start) -> None:
    seen: list[bytes] = []

    async def lose_two(message: bytes, call: Call) -> bytes:
        seen.append(message)
        if len(seen) < 3:
            await asyncio.sleep(10)  # beyond the deadline
        return b"answer"

    _, address = start({METHOD: lose_two})
    clock = HandClock()
    with connect(address, clock) as connection:
        assert connection.call(METHOD, b"push 7", deadline_seconds=0.1) == b"answer"
    assert seen[:3] == [b"push 7"] * 3
    assert clock.pauses[:2] == [0.05, 0.1]


def test_a_repeated_call_carries_its_attempt_number(start: Start) -> None:
    seen: list[bytes] = []

    async def lose_two(message: bytes, call: Call) -> bytes:
        seen.append(message)
        if len(seen) < 3:
            await asyncio.sleep(10)
        return b""

    _, address = start({METHOD: lose_two})
    with connect(address, HandClock()) as connection:
        connection.call(METHOD, b"0", deadline_seconds=0.1, repeat=lambda n: str(n).encode())
    assert seen[:3] == [b"0", b"1", b"2"]


def test_patience_restarts_after_a_call_that_was_held_back(no_server: str) -> None:
    clock = HandClock({6: 60.0})  # the third attempt takes a minute
    with connect(no_server, clock) as connection, pytest.raises(NodeError):
        connection.call(METHOD, b"")
    assert clock.pauses == [0.05, 0.1, *(0.05, 0.1, 0.2, 0.4, 0.8, 1.6)]


def test_a_refusal_is_not_repeated(start: Start) -> None:
    async def refuse(message: bytes, call: Call) -> bytes:
        raise RejectedError("w3: a value is NaN or infinite")

    host, address = start({METHOD: refuse})
    clock = HandClock()
    with connect(address, clock) as connection, pytest.raises(RejectedError) as caught:
        connection.call(METHOD, b"")
    assert str(caught.value) == (
        f"{address}: the parameter server refused Pull: w3: a value is NaN or infinite "
        "(FAILED_PRECONDITION)"
    )
    assert (clock.pauses, host.gate.counts) == ([], {"FAILED_PRECONDITION": 1})


def test_the_wrong_token_is_a_refusal(start: Start) -> None:
    _, address = start({})
    with (
        Connection(address, token="wrong", limits=LIMITS) as connection,
        pytest.raises(RejectedError, match="UNAUTHENTICATED"),
    ):
        connection.call(METHOD, b"")


def test_a_restarted_server_is_found_again(start: Start) -> None:
    async def echo(message: bytes, call: Call) -> bytes:
        return message

    first, address = start({METHOD: echo})
    with Connection(address, token=token_of("right", "w3"), limits=LIMITS) as connection:
        assert connection.call(METHOD, b"1") == b"1"
        first.stop()
        with pytest.raises(NodeError):
            connection.call(METHOD, b"2", patience_seconds=0.0)
        start({METHOD: echo}, address.removeprefix("ipv4:"))
        assert connection.call(METHOD, b"2") == b"2"


def test_limits_follow_from_the_model() -> None:
    limits = MessageLimits.of(211_690, transfer_seconds=7.0)
    assert limits.message_bytes == 8 * 211_690 + 65_536
    assert limits.ping_patience_seconds == 34.0
    assert ("grpc.keepalive_timeout_ms", 34_000) in limits.channel_options()
    assert ("grpc.keepalive_timeout_ms", 34_000) in limits.server_options()


def test_a_model_above_the_limit_is_refused_by_name() -> None:
    assert MessageLimits.of(2**29).message_bytes > 2**32
    with pytest.raises(HostError, match=r"536870913 parameters take 2048\.0 MiB, expected at most"):
        MessageLimits.of(2**29 + 1)
