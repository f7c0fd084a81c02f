"""Samples sent from worker to worker, with their pixels."""

from __future__ import annotations

import numpy as np
import pytest

from testbed.algorithms.base import Reply, Update
from testbed.algorithms.frame.record import Intake, Timing
from testbed.payloads import Dense, Sparse
from testbed.rpc._pb import ps_pb2
from testbed.rpc.codec import decode_delivery, decode_push, encode_delivery, encode_push
from testbed.rpc.messages import Delivery, PushMessage
from testbed.rpc.shared import Exchanged, SharedSamples
from testbed.rpc.wire import MalformedError
from testbed.values.state import pack, unpack

SHARED = SharedSamples(
    np.array([4, 9]), np.array([1.0, 7.0]), np.array([[1, 2, 3], [4, 5, 6]], np.uint8)
)
OTHER = SharedSamples(np.array([9, 2]), np.array([7.0, 0.0]), np.full((2, 3), 8, np.uint8))


def same(one: SharedSamples | None, other: SharedSamples) -> bool:
    assert one is not None
    parts = zip(vars(one).values(), vars(other).values(), strict=True)
    return all(np.array_equal(*pair) for pair in parts)


def push(**changes: object) -> PushMessage:
    update = Update(Sparse.nothing(), 3, samples=0, steps=0, shared=SHARED.samples)
    return PushMessage(0, 1, 5, update, Timing(), shared=SHARED, **changes)  # type: ignore[arg-type]


def test_the_pixels_of_shared_samples_are_payload_both_ways() -> None:
    """Two samples of three bytes; their numbers and labels are not payload, nor an empty update."""
    found = decode_push(encode_push(push()).data)
    assert same(found.shared, SHARED)
    assert found.update.shared is not None
    assert found.update.shared.tolist() == [4, 9]
    assert found.payload_bytes == 6
    reply = Reply(Dense(np.zeros(2, np.float32)), 3, shared=SHARED.samples)
    encoded = encode_delivery(Delivery(reply, shared=SHARED))
    assert encoded.payload_bytes == 8 + 6
    delivered = decode_delivery(encoded.data)
    assert same(delivered.shared, SHARED)
    assert delivered.reply is not None
    assert delivered.reply.shared is not None


def test_an_update_carries_the_intake_of_its_stream() -> None:
    intake = Intake(0.5, 1.0, 64.0, 100, 90, 6, 3, 1, 0.25, 2, 4)
    assert decode_push(encode_push(push(intake=intake)).data).intake == intake
    assert decode_push(encode_push(push()).data).intake is None


@pytest.mark.parametrize("place", [0, 2, 8])
@pytest.mark.parametrize("value", [-1.0, float("nan"), float("inf")])
def test_impossible_numbers_of_a_stream_are_refused(place: int, value: float) -> None:
    intake = Intake()._asdict() | {Intake._fields[place]: value}
    with pytest.raises(MalformedError, match="expected finite numbers"):
        decode_push(encode_push(push(intake=Intake(**intake))).data)


@pytest.mark.parametrize(
    "message",
    [
        ps_pb2.Shared(),
        ps_pb2.Shared(samples=b"\0" * 7, labels=b"\0" * 8, pixels=b"123"),
        ps_pb2.Shared(samples=b"\0" * 16, labels=b"\0" * 8, pixels=b"12"),
        ps_pb2.Shared(samples=b"\0" * 16, labels=b"\0" * 16, pixels=b"123"),
        ps_pb2.Shared(samples=b"\xff" * 8, labels=b"\0" * 8, pixels=b"123"),
        ps_pb2.Shared(samples=b"\0" * 8, labels=b"\xff" * 8, pixels=b"123"),
    ],
)
def test_invalid_samples_are_refused(message: ps_pb2.Shared) -> None:
    with pytest.raises(MalformedError):
        SharedSamples.of(message)


def test_the_server_forwards_the_latest_samples() -> None:
    exchanged = Exchanged(3)
    exchanged.keep(0, SHARED)
    exchanged.keep(1, OTHER)
    model = Sparse.nothing()
    found = exchanged.of(Reply(model, 1, shared=np.array([2, 4])))
    assert found is not None
    assert found.pixels.tolist() == [[8, 8, 8], [1, 2, 3]]
    assert exchanged.of(Reply(model, 1)) is None
    with pytest.raises(MalformedError, match="shared samples of 3 bytes, expected 4"):
        Exchanged(4).check(SHARED)


def test_a_server_restored_from_a_checkpoint_has_the_samples() -> None:
    exchanged, after = Exchanged(3), Exchanged(3)
    exchanged.keep(0, SHARED)
    after._latest = unpack(pack(exchanged._latest))
    assert same(after.of(Reply(Sparse.nothing(), 1, shared=SHARED.samples)), SHARED)
