"""The gate: authorized callers, refusals and their counts, and what ends the server."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from testbed.errors import HostError, RejectedError
from testbed.rpc.addresses import unix_address
from testbed.rpc.client import Connection
from testbed.rpc.limits import MessageLimits
from testbed.rpc.methods import TOKEN_KEY
from testbed.rpc.service import MAX_CALLS, MAX_READ, Call, Gate, SupersededError, serving
from testbed.rpc.tokens import token_of
from testbed.rpc.wire import MalformedError

METHOD = "/testbed.v1.ParameterServer/Pull"
TOKEN = token_of("right", "w3")

Start = Callable[..., tuple[Any, str]]


async def echo(message: bytes, call: Call) -> bytes:
    """Echoes its request."""
    return message


def ask(
    address: str,
    message: bytes = b"hello",
    *,
    method: str = METHOD,
    metadata: tuple[tuple[str, str | bytes], ...] = ((TOKEN_KEY, TOKEN),),
    compression: grpc.Compression | None = None,
) -> bytes | tuple[grpc.StatusCode, str]:
    """A call as any client makes it: the answer, or status and details."""
    options = [("grpc.use_local_subchannel_pool", 1)]
    with grpc.insecure_channel(address, options=options) as channel:
        try:
            call = channel.unary_unary(method, None, None)
            answer = call(message, metadata=metadata, compression=compression, timeout=10)
            assert isinstance(answer, bytes)
            return answer
        except grpc.RpcError as error:
            return error.code(), error.details() or ""


def status(answer: bytes | tuple[grpc.StatusCode, str]) -> str:
    """The status name of a refused call."""
    assert isinstance(answer, tuple)
    return answer[0].name


def test_a_call_with_the_token_is_answered(start: Start) -> None:
    host, address = start({METHOD: echo})
    assert ask(address) == b"hello"
    assert ask(address, b"") == b""
    assert (dict(host.gate.counts), host.refusals) == ({"OK": 2}, [])


@pytest.mark.parametrize(
    "metadata",
    [
        (),
        ((TOKEN_KEY, ""),),
        ((TOKEN_KEY, "wrong"),),
        ((TOKEN_KEY, TOKEN + "x"),),
        ((TOKEN_KEY, TOKEN.replace("w3", "w4")),),
        ((TOKEN_KEY, token_of("right", "w4")),),  # of another caller
        ((TOKEN_KEY, TOKEN), (TOKEN_KEY, "wrong")),
        (("authorization", TOKEN),),
        ((TOKEN_KEY + "-bin", TOKEN.encode()),),
    ],
)
@pytest.mark.parametrize("method", [METHOD, "/testbed.v1.ParameterServer/Nothing", "/x"])
def test_calls_without_the_token_are_refused(
    start: Start, metadata: tuple[tuple[str, str | bytes], ...], method: str
) -> None:
    host, address = start({METHOD: echo})
    assert status(ask(address, metadata=metadata, method=method)) == "UNAUTHENTICATED"
    # A message far above every limit is not even read.
    answer = ask(address, b"x" * 2_000_000, metadata=metadata, method=method)
    assert status(answer) == "UNAUTHENTICATED"
    assert dict(host.gate.counts) == {"UNAUTHENTICATED": 2}
    assert [refusal.code for refusal in host.refusals] == ["UNAUTHENTICATED"] * 2
    assert host.refusals[0].call.peer.startswith("ipv4:127.0.0.1:")


def test_unknown_methods_are_refused_and_counted(start: Start) -> None:
    host, address = start({METHOD: echo})
    answer = ask(address, method="/testbed.v1.Management/Snapshot")
    assert answer == (
        grpc.StatusCode.UNIMPLEMENTED,
        "unknown method /testbed.v1.Management/Snapshot",
    )
    assert dict(host.gate.counts) == {"UNIMPLEMENTED": 1}


def test_a_message_above_the_models_limit_is_refused(start: Start) -> None:
    host, address = start({METHOD: echo})
    assert len(ask(address, b"x" * 1000)) == 1000
    answer = ask(address, b"x" * 1001)
    assert answer == (
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        "a message of 1001 bytes, expected at most 1000",
    )
    assert host.gate.counts == {"OK": 1, "RESOURCE_EXHAUSTED": 1}


def test_a_message_above_every_limit_is_counted(start: Start) -> None:
    host, address = start({METHOD: echo})
    assert status(ask(address, bytes(200_000_000))) == "RESOURCE_EXHAUSTED"
    assert ask(address) == b"hello"
    assert host.gate.counts == {"OK": 1, "INCOMPLETE": 1}


def test_a_compressed_message_is_refused(start: Start, capfd: pytest.CaptureFixture[str]) -> None:
    host, address = start({METHOD: echo})
    answer = ask(address, b"x" * 5000, compression=grpc.Compression.Gzip)
    assert status(answer) == "UNIMPLEMENTED"
    assert host.gate.counts["OK"] == 0
    capfd.readouterr()  # gRPC logs it too


def test_a_call_without_a_message_is_refused(start: Start) -> None:
    host, address = start({METHOD: echo})
    with grpc.insecure_channel(address) as channel:
        call = channel.stream_unary(METHOD, None, None)
        with pytest.raises(grpc.RpcError) as caught:
            call(iter(()), metadata=((TOKEN_KEY, TOKEN),), timeout=10)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert host.gate.counts == {"INCOMPLETE": 1}


def test_bytes_that_are_not_http_are_harmless(
    start: Start, capfd: pytest.CaptureFixture[str]
) -> None:
    _, address = start({METHOD: echo})
    port = int(address.rpartition(":")[2])
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    for garbage in (b"", b"\0" * 100, b"GET / HTTP/1.1\r\n\r\n", preface + b"\xff" * 50):
        with socket.create_connection(("127.0.0.1", port)) as raw:
            raw.sendall(garbage)
    assert ask(address) == b"hello"
    capfd.readouterr()


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (MalformedError("what"), "INVALID_ARGUMENT"),
        (RejectedError("what"), "FAILED_PRECONDITION"),
        (SupersededError("what"), "ABORTED"),
    ],
)
def test_refusals_have_their_status(start: Start, error: Exception, code: str) -> None:
    async def refuse(message: bytes, call: Call) -> bytes:
        call.node = "w3"
        raise error

    host, address = start({METHOD: refuse})
    answer = ask(address)
    assert (status(answer), answer[1]) == (code, "what")
    assert (host.gate.counts, host.failures) == ({code: 1}, [])
    named = [(refusal.call.node, refusal.code) for refusal in host.refusals]
    assert named == ([] if code == "ABORTED" else [("w3", code)])


def test_an_unexpected_error_is_reported(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    async def fail(message: bytes, call: Call) -> bytes:
        raise ZeroDivisionError("of all things")

    host, address = start({METHOD: fail})
    assert status(ask(address)) == "UNKNOWN"
    assert [type(failure) for failure in host.failures] == [ZeroDivisionError]
    caplog.clear()  # gRPC logs it too


def test_a_disconnected_caller_is_not_a_failure(start: Start) -> None:
    entered = threading.Event()

    async def hold(message: bytes, call: Call) -> bytes:
        entered.set()
        await asyncio.Event().wait()
        raise AssertionError

    host, address = start({METHOD: hold, "/x/y": echo})
    with grpc.insecure_channel(address) as channel:
        future = channel.unary_unary(METHOD, None, None).future(b"", metadata=((TOKEN_KEY, TOKEN),))
        assert entered.wait(10)
        future.cancel()
    assert ask(address, method="/x/y") == b"hello"
    assert (host.refusals, host.failures) == ([], [])


def test_open_calls_per_caller_are_limited(start: Start) -> None:
    """Each of MAX_CALLS is held; the next is refused, and read only after one has ended."""
    entered = threading.Semaphore(0)

    async def hold(message: bytes, call: Call) -> bytes:
        entered.release()
        await asyncio.Event().wait()
        raise AssertionError

    host, address = start({METHOD: hold, "/x/y": echo})
    metadata = ((TOKEN_KEY, TOKEN),)
    with grpc.insecure_channel(address, [("grpc.use_local_subchannel_pool", 1)]) as channel:
        held = [
            channel.unary_unary(METHOD, None, None).future(b"", metadata=metadata)
            for _ in range(MAX_CALLS)
        ]
        for _ in held:
            assert entered.acquire(timeout=180)
        answer = ask(address, method="/x/y")
        assert status(answer) == "RESOURCE_EXHAUSTED"
        assert answer[1] == f"w3 already has {MAX_CALLS} open calls"
        for one in held:
            one.cancel()
    while isinstance(ask(address, method="/x/y"), tuple):
        pass  # the server learns of the last cancellations a moment later
    assert host.failures == []


def test_concurrent_messages_per_caller_are_limited(start: Start) -> None:
    """Two start and do not end; a third waits for one of them, and is answered then."""
    host, address = start({METHOD: echo})
    metadata = ((TOKEN_KEY, TOKEN),)
    ended = threading.Event()

    def nothing() -> Iterator[bytes]:
        ended.wait(20)
        yield b"late"

    with grpc.insecure_channel(address, [("grpc.use_local_subchannel_pool", 1)]) as channel:
        slow = [
            channel.stream_unary(METHOD, None, None).future(nothing(), metadata=metadata)
            for _ in range(MAX_READ)
        ]
        caller = host.gate._callers["w3"]
        while caller.calls < MAX_READ:
            pass
        third = channel.unary_unary(METHOD, None, None).future(b"third", metadata=metadata)
        while caller.calls < MAX_READ + 1:
            pass
        assert not third.done()
        ended.set()
        assert third.result(10) == b"third"
        assert [one.result(10) for one in slow] == [b"late"] * MAX_READ


def test_a_port_in_use_is_an_error(start: Start, capfd: pytest.CaptureFixture[str]) -> None:
    _, address = start({METHOD: echo})

    async def listen_again() -> None:
        gate = Gate({}, {}, MessageLimits(1000), lambda refusal: None, lambda error: None)
        async with serving(address.removeprefix("ipv4:"), gate):
            raise AssertionError

    with pytest.raises(HostError, match="cannot listen on this address"):
        asyncio.run(listen_again())
    assert ask(address) == b"hello"
    capfd.readouterr()


@pytest.mark.parametrize("name", ["a,b", "a#b", "a?b", "a%20b", "ratio=0.1,seeds=[1,2]"])
def test_a_unix_socket_may_be_in_a_folder_of_any_name(
    start: Start, tmp_path: Path, name: str
) -> None:
    path = tmp_path / name / "ps.sock"
    path.parent.mkdir()
    with unix_address(path) as listening, unix_address(path) as address:
        start({METHOD: echo}, listening)
        assert path.is_socket()
        with Connection(address, token=TOKEN, limits=MessageLimits(1000)) as connection:
            assert connection.call(METHOD, b"hello") == b"hello"


@pytest.mark.parametrize("length", [60, 150])
def test_a_unix_socket_may_have_a_long_path(start: Start, tmp_path: Path, length: int) -> None:
    folder = tmp_path / ("d" * max(1, length - len(str(tmp_path)) - len("//ps.sock")))
    folder.mkdir()
    path = folder / "ps.sock"
    with unix_address(path) as listening, unix_address(path) as address:
        host, _ = start({METHOD: echo}, listening)
        assert path.is_socket()
        with Connection(address, token=TOKEN, limits=MessageLimits(1000)) as connection:
            assert connection.call(METHOD, b"hello") == b"hello"
        assert status(ask(address, metadata=())) == "UNAUTHENTICATED"
        assert host.gate.counts == {"OK": 1, "UNAUTHENTICATED": 1}
