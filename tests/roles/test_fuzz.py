"""Thousands of damaged messages to a real server: none is applied, all are counted."""

from __future__ import annotations

import math
import struct
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from google.protobuf.message import DecodeError

from testbed.algorithms.base import Update
from testbed.errors import RejectedError
from testbed.payloads import Sparse
from testbed.payloads.encodings import Encoding
from testbed.payloads.layout import Layout
from testbed.roles.ps import MAX_EVENTS
from testbed.rpc import methods
from testbed.rpc._pb import ps_pb2
from testbed.rpc.codec import decode_delivery, encode_push
from testbed.rpc.limits import MessageLimits
from testbed.rpc.messages import PushMessage, Timing
from testbed.rpc.wire import join, split
from testbed.telemetry.entry import only
from testbed.telemetry.events import read_events
from testbed.telemetry.ps_events import Incomplete, Rejected

LAYOUT = Layout(("weight", "bias"), ((10, 5), (5,)))
LIMITS = MessageLimits.of(LAYOUT.size)
NO_FIELD = b"\xff" * 11  # no message starts like this

Begin = Callable[..., Any]


def update(encoding: Encoding = "raw", /, **changes: object) -> bytes:
    """The first push of worker 0 with three entries; fields override its own."""
    payload = Sparse(np.array([3, 17, 54], np.int32), np.array([1, -2, 0.5], np.float32))
    push = PushMessage(0, 1, LAYOUT.fingerprint, Update(payload, version=0, samples=10), Timing(1))
    message, data = split(ps_pb2.ExchangeRequest, encode_push(push, encoding).data)
    parts: dict[str, Any] = {"data": data}
    if encoding == "raw":
        parts = {"indices": data[:12], "values": data[12:]}
    for name, value in changes.items():
        if name in parts:
            parts[name] = value
        else:
            about = message.payload if name in ("kind", "entries", "value_bytes") else message
            setattr(about, name, value)
    if encoding == "raw":
        message.payload.sizes[:] = map(len, parts.values())
    return join(message, parts.values())


def is_valid(data: bytes) -> bool:
    """Whether a push may be applied, judged by the generated class and plain Python."""
    try:
        end = 4 + int.from_bytes(data[:4], "little")
        message = ps_pb2.ExchangeRequest.FromString(data[4:end])
    except DecodeError:
        return False
    payload, arrays = message.payload, data[end:]
    k = len(arrays) // 8
    if (payload.kind, payload.value_bytes, list(payload.sizes)) != (2, 0, [4 * k, 4 * k]):
        return False
    if len(arrays) % 8 or end > len(data):
        return False
    indices = [-1, *struct.unpack(f"<{k}i", arrays[: 4 * k]), LAYOUT.size]
    values = struct.unpack(f"<{k}f", arrays[4 * k :])
    seconds = [value for _, value in message.timing.ListFields()]
    return (
        message.worker == 0
        and (message.sequence, message.version) == (1, 0)
        and message.fingerprint == LAYOUT.fingerprint
        and 1 <= message.samples < 2**31
        and all(math.isfinite(value) for value in values)
        and all(math.isfinite(value) and value >= 0 for value in seconds)
        and all(one < other for one, other in pairwise(indices))
    )


def damaged(message: bytes, rng: np.random.Generator) -> bytes:
    """A message with one or two errors: bits, bytes, lengths, order, or everything."""
    data = bytearray(message)
    for _ in range(rng.integers(1, 3)):
        start, end = sorted(int(place) for place in rng.integers(0, len(data) + 1, 2))
        match rng.choice([0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7]):
            case 0 if data:
                data[min(start, len(data) - 1)] ^= 1 << int(rng.integers(0, 8))
            case 1 if data:
                data[min(start, len(data) - 1)] = int(rng.choice([0, 1, 0x7F, 0x80, 0xFF]))
            case 2:
                del data[start:]
            case 3:
                del data[start:end]
            case 4:
                data[start:start] = data[start:end]
            case 5:
                data[start:start] = rng.bytes(int(rng.integers(1, 12)))
            case 6:
                data[start:end] = b"\xff" * (end - start)
            case 7:
                data[:] = rng.bytes(int(rng.integers(0, 200)))
    return bytes(data)


def messages(rng: np.random.Generator, count: int) -> Iterator[tuple[str, bytes]]:
    """Calls that must not be applied: method and request."""
    join = ps_pb2.JoinRequest(worker=1, fingerprint=LAYOUT.fingerprint).SerializeToString()
    snapshot = ps_pb2.SnapshotRequest(least_version=7).SerializeToString()
    report = ps_pb2.ReportRequest(
        version=99, loss=1, metrics=[ps_pb2.Metric(name="top1", value=0.5)], images=10, final=True
    )
    for _ in range(count):
        data = damaged(update(), rng)
        if not is_valid(data):
            yield methods.EXCHANGE, data
    for _ in range(count // 10):
        yield methods.EXCHANGE, update() + bytes(LIMITS.message_bytes)
        yield methods.EXCHANGE + "s", update()
        yield methods.JOIN, damaged(join, rng)
        yield methods.REPORT, damaged(report.SerializeToString(), rng)
        yield methods.SNAPSHOT, NO_FIELD + damaged(snapshot, rng)
        yield methods.PULL, NO_FIELD + rng.bytes(int(rng.integers(0, 20)))
        yield methods.LEAVE, NO_FIELD + rng.bytes(int(rng.integers(0, 20)))
        yield methods.REMOVE, NO_FIELD + rng.bytes(int(rng.integers(0, 20)))


def caller(method: str) -> str:
    """The connection that makes such calls."""
    if "Management" in method:
        return "controller" if method == methods.REMOVE else "evaluator"
    return "w1" if method == methods.JOIN else "w0"


def outcome(channel: grpc.Channel, method: str, data: bytes, *, token: str) -> str:
    """Call, and return the name of the status."""
    try:
        channel.unary_unary(method, None, None)(
            data, metadata=((methods.TOKEN_KEY, token),), timeout=20
        )
    except grpc.RpcError as error:
        return str(error.code().name)
    return "OK"


@pytest.mark.parametrize("count", [500, pytest.param(5000, marks=pytest.mark.slow)])
def test_damaged_messages_change_nothing_and_are_counted(
    begin: Begin, tmp_path: Path, count: int
) -> None:
    stage = begin(LAYOUT)
    before = stage.half.parameters.tobytes()
    outcomes = Counter({"OK": 4})  # joins and pulls
    options = LIMITS.channel_options()
    with (
        grpc.insecure_channel(f"ipv4:{stage.address}", options) as workers,
        grpc.insecure_channel(f"unix:{stage.socket}", options) as management,
    ):
        for method, data in messages(np.random.default_rng(20), count):
            channel = management if "Management" in method else workers
            answer = outcome(channel, method, data, token=stage.token(caller(method)))
            assert method == methods.JOIN or answer != "OK", (method, data)
            outcomes[answer] += 1
            if method != methods.EXCHANGE:
                outcomes[outcome(channel, method, data, token="guess")] += 1
        assert stage.half.parameters.tobytes() == before
        assert stage.half.version == 0
        assert outcome(workers, methods.EXCHANGE, update(), token=stage.token("w0")) == "OK"
    outcomes["OK"] += 1
    assert stage.counts() == outcomes
    assert outcomes.keys() == {
        *("OK", "INVALID_ARGUMENT", "FAILED_PRECONDITION"),
        *("RESOURCE_EXHAUSTED", "UNIMPLEMENTED", "UNAUTHENTICATED", "PERMISSION_DENIED"),
    }
    assert min(outcomes["INVALID_ARGUMENT"], outcomes["FAILED_PRECONDITION"]) > count // 10
    entries = read_events(tmp_path / "events.jsonl")
    rejected = Counter(event.node for event in only(entries, Rejected))
    assert rejected.keys() == {"w0", "w1", "evaluator", "controller", None}
    assert rejected["w0"] == rejected[None] == MAX_EVENTS  # then only counted
    assert not only(entries, Incomplete)
    assert stage.half.parameters.tobytes() != before
    assert stage.half.version == 1


REFUSED: list[tuple[dict[str, object], str]] = [
    ({"worker": 1}, "w0 called as worker 1, expected its own number"),
    ({"worker": 7}, "w0 called as worker 7, expected its own number"),
    ({"version": 1}, "w0: version 1 is from the future, the model is at 0"),
    ({"sequence": 2}, "w0: push 2 is out of order, expected 1"),
    ({"fingerprint": 5}, "worker 0: its model has fingerprint 0000000000000005"),
    ({"samples": 0}, "w0: 0 samples, expected at least 1"),
    ({"indices": struct.pack("<3i", 3, 17, 55)}, "must increase strictly within [0, 55)"),
    ({"indices": struct.pack("<3i", -1, 17, 54)}, "must increase strictly within [0, 55)"),
    ({"indices": struct.pack("<3i", 17, 3, 54)}, "must increase strictly"),
    ({"indices": struct.pack("<3i", 3, 3, 54)}, "must increase strictly"),
    ({"indices": struct.pack("<2i", 3, 17)}, "2 indices with 3 values"),
    ({"values": struct.pack("<3f", 1, math.nan, 1)}, "w0: a value is NaN or infinite"),
    ({"values": struct.pack("<3f", 1, -math.inf, 1)}, "w0: a value is NaN or infinite"),
    ({"values": b"1234567"}, "7 bytes of 4-byte numbers"),
    ({"values": bytes(LIMITS.message_bytes)}, "expected at most 65976"),
]


def test_each_refusal_names_worker_and_reason(begin: Begin, tmp_path: Path) -> None:
    stage = begin(LAYOUT)
    before = stage.half.parameters.tobytes()
    with stage.connect("w0") as connection:
        request = ps_pb2.JoinRequest(worker=0, fingerprint=LAYOUT.fingerprint)
        connection.call(methods.JOIN, request.SerializeToString())
        for changes, reason in REFUSED:
            with pytest.raises(RejectedError) as caught:
                connection.call(methods.EXCHANGE, update(**changes))
            assert reason in str(caught.value)
            event = read_events(tmp_path / "events.jsonl")[-1].event
            assert isinstance(event, Rejected)
            # The token identifies the worker, whatever the message says.
            assert (event.node, event.method) == ("w0", "Exchange")
            assert reason in event.reason
            assert stage.half.parameters.tobytes() == before
        assert decode_delivery(connection.call(methods.EXCHANGE, update())).reply is not None
    assert stage.half.version == 1


def bomb(size: int) -> bytes:
    """A plane that inflates to much more than it should."""
    deflate = zlib.compressobj(9, zlib.DEFLATED, -15)
    inner = deflate.compress(bytes(size)) + deflate.flush()
    return struct.pack("<I", len(inner)) + inner


def damaged_pushes() -> list[tuple[dict[str, object], str]]:
    """Changes of a packed push, and why each is refused."""
    return [
        ({"kind": 9}, "a payload of kind 9 with values of 4 bytes, expected a known kind"),
        (
            {"value_bytes": 2},
            "with values of 2 bytes, expected a known kind packed with values of 4",
        ),
        ({"entries": 56}, "56 packed entries, for a model of 55"),
        ({"entries": 2**32 - 1}, "packed entries, for a model of 55"),
        ({"entries": 4}, "not a packed payload: a plane"),
        (
            {"entries": 55, "data": bomb(50_000_000)},
            "a plane of 48604 bytes, expected 1 to 55 bytes",
        ),
        ({"entries": 55, "data": bomb(30_000)}, "a plane does not inflate to 55 bytes"),
        ({"data": b""}, "no plane, expected 1 to 3 bytes"),
        ({"saturated": 1}, "1 saturated values of 0 rounded values"),
    ]


def test_damaged_packed_pushes_are_refused_and_counted(begin: Begin, tmp_path: Path) -> None:
    stage, damaged = begin(LAYOUT, encoding="packed"), damaged_pushes()
    before = stage.half.parameters.tobytes()
    with stage.connect("w0") as connection:
        for changes, reason in damaged:
            with pytest.raises(RejectedError, match="INVALID_ARGUMENT") as caught:
                connection.call(methods.EXCHANGE, update("packed", **changes))
            assert reason in str(caught.value)
            assert reason in only(read_events(tmp_path / "events.jsonl"), Rejected)[-1].reason
        with pytest.raises(RejectedError, match="this scenario's encoding is packed"):
            connection.call(methods.EXCHANGE, update("raw"))
        assert stage.counts()["INVALID_ARGUMENT"] == len(damaged) + 1
        assert stage.half.parameters.tobytes() == before
        reply = decode_delivery(connection.call(methods.EXCHANGE, update("packed"))).reply
    assert reply is not None
    assert stage.half.version == 1


def test_a_packed_push_is_refused_where_pushes_are_raw(begin: Begin) -> None:
    with (
        begin(LAYOUT).connect("w0") as connection,
        pytest.raises(RejectedError, match="packed or unknown"),
    ):
        connection.call(methods.EXCHANGE, update("packed"))
