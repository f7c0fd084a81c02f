"""A worker can act only for itself, and can fill neither disk nor memory of the server."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from math import inf
from pathlib import Path
from typing import Any

import grpc
import pytest

from testbed.errors import RejectedError
from testbed.payloads.layout import Layout
from testbed.reports.measures import rejected_pushes
from testbed.roles.ps import MAX_EVENTS
from testbed.rpc import methods
from testbed.rpc._pb import ps_pb2
from testbed.rpc.limits import MessageLimits
from testbed.rpc.tokens import token_of
from testbed.telemetry.entry import only
from testbed.telemetry.events import read_events
from testbed.telemetry.ps_events import Joined, Left, Omitted, Received, Rejected

LAYOUT = Layout(("weight",), ((10, 5),))
LOOPS = 300


@pytest.fixture
def stage(begin: Callable[..., Any]) -> Any:
    """A started training with w0 and w1."""
    return begin(LAYOUT)


def join(worker: int) -> bytes:
    return ps_pb2.JoinRequest(worker=worker, fingerprint=LAYOUT.fingerprint).SerializeToString()


def leave(worker: int) -> bytes:
    return ps_pb2.LeaveRequest(worker=worker).SerializeToString()


def test_a_token_is_derived_from_secret_and_name() -> None:
    # echo -n w3 | openssl dgst -sha256 -hmac secret
    assert token_of("secret", "w3") == (
        "w3:fd0444d2eaca32c0a1c036fdb76e7102404e272494c1f64360b6b6a6bab04f93"
    )
    assert token_of("secret", "w4") != token_of("secret", "w3") != token_of("other", "w3")


@pytest.mark.parametrize(
    ("method", "message"),
    [
        (methods.JOIN, join(1)),
        (methods.PULL, ps_pb2.PullRequest(worker=1).SerializeToString()),
        (methods.LEAVE, leave(1)),
        (methods.RECEIVED, ps_pb2.ReceivedRequest(worker=1).SerializeToString()),
    ],
)
def test_a_call_on_behalf_of_another_worker_is_refused(
    stage: Any, tmp_path: Path, method: str, message: bytes
) -> None:
    refused = pytest.raises(RejectedError, match="w0 called as worker 1, expected its own number")
    with stage.connect("w0") as connection, refused:
        connection.call(method, message)
    events = read_events(tmp_path / "events.jsonl")
    assert [(one.node, one.code) for one in only(events, Rejected)] == [("w0", "PERMISSION_DENIED")]
    assert only(events, Left) == []
    assert len(only(events, Joined)) == 2


@pytest.mark.parametrize(
    ("node", "method"),
    [
        ("evaluator", methods.REMOVE),
        ("evaluator", methods.SILENCE),
        ("controller", methods.SNAPSHOT),
        ("controller", methods.REPORT),
    ],
)
def test_management_calls_are_restricted_to_their_caller(
    stage: Any, node: str, method: str
) -> None:
    refused = pytest.raises(
        RejectedError, match=f"{node} called .*, which only .* may call .PERMISSION_DENIED"
    )
    with stage.connect(node) as connection, refused:
        connection.call(method, b"")


def test_a_worker_reports_what_it_received_of_its_stream(stage: Any, tmp_path: Path) -> None:
    said = {"received": 98, "missing": 3, "removed": 2, "silent_seconds": 30.5}
    with stage.connect("w0") as connection:
        request = ps_pb2.ReceivedRequest(worker=0, **said)
        connection.call(methods.RECEIVED, request.SerializeToString())
        for wrong in ({"received": 2**64 - 1}, {"silent_seconds": -1}, {"silent_seconds": inf}):
            impossible = ps_pb2.ReceivedRequest(worker=0, **(said | wrong)).SerializeToString()
            with pytest.raises(RejectedError, match=r"out of range .INVALID_ARGUMENT"):
                connection.call(methods.RECEIVED, impossible)
    (event,) = only(read_events(tmp_path / "events.jsonl"), Received)
    assert event == Received("w0", 98, 3, 2, 30.5)


def test_endless_joins_and_leaves_are_counted(stage: Any, tmp_path: Path) -> None:
    """The first join was at the start."""
    with stage.connect("w0") as connection:
        for _ in range(LOOPS):
            connection.call(methods.LEAVE, leave(0))
            connection.call(methods.JOIN, join(0))
        for _ in range(LOOPS):
            with pytest.raises(RejectedError):
                connection.call(methods.LEAVE, leave(1))
    stage.stop()
    events = read_events(tmp_path / "events.jsonl")
    written = Counter(type(one.event) for one in events if getattr(one.event, "node", "") == "w0")
    assert written[Joined] == written[Left] == written[Rejected] == MAX_EVENTS
    assert set(only(events, Omitted)) == {
        Omitted("w0", "joined", LOOPS + 1 - MAX_EVENTS),
        Omitted("w0", "left", LOOPS - MAX_EVENTS),
        Omitted("w0", "rejected", LOOPS - MAX_EVENTS),
    }
    # One reason in the verdict, with the number refused: 1 and 299 more.
    assert rejected_pushes(events) == [
        ("w0", "w0 called as worker 1, expected its own number, and 299 more")
    ]


def test_messages_far_larger_than_the_model_are_dropped_unread(stage: Any) -> None:
    """The limit for 50 parameters is 400 bytes plus an envelope of 65,536; twice that is unread."""
    options = dict(stage.limits.server_options())
    assert options["grpc.max_receive_message_length"] == 2 * (8 * 50 + 65_536)
    assert options["grpc.http2.lookahead_bytes"] == 65_936
    large = dict(MessageLimits.of(16_000_000).server_options())
    assert large["grpc.http2.lookahead_bytes"] == 8 * 2**20
    metadata = ((methods.TOKEN_KEY, stage.token("w0")),)
    big = bytes(10_000_000)

    def push(_: int) -> str:
        with grpc.insecure_channel(f"ipv4:{stage.address}", ALONE) as channel:
            try:
                channel.unary_unary(methods.EXCHANGE, None, None)(big, metadata=metadata)
            except grpc.RpcError as error:
                return str(error.code().name)
        return "OK"

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(push, range(32))) == {"RESOURCE_EXHAUSTED"}
    assert stage.counts()["INCOMPLETE"] + stage.counts()["RESOURCE_EXHAUSTED"] == 32


ALONE = [("grpc.use_local_subchannel_pool", 1)]
