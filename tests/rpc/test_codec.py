"""Pushes, replies and snapshots as frames, both ways."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.algorithms.base import Orders, Reply, Update
from testbed.algorithms.frame.effects import NO_STANDING, StandingOrders
from testbed.algorithms.frame.record import Timing
from testbed.payloads import Dense, Payload, Sparse
from testbed.payloads.encodings import Encoding
from testbed.rpc._pb import ps_pb2
from testbed.rpc.codec import (
    decode_delivery,
    decode_orders,
    decode_push,
    decode_snapshot,
    encode_delivery,
    encode_orders,
    encode_push,
    encode_snapshot,
)
from testbed.rpc.messages import Delivery, PushMessage, Snapshot
from testbed.rpc.wire import MalformedError, join, split

TIMING = Timing(0.5, 0.25, 1.5, 2.0, 0.125)


def dense(*values: float) -> Dense:
    """A dense payload."""
    return Dense(np.array(values, np.float32))


def sparse(entries: dict[int, float]) -> Sparse:
    """A sparse payload."""
    return Sparse(np.array(list(entries), np.int32), np.array(list(entries.values()), np.float32))


def push(payload: Payload) -> PushMessage:
    """The fifth push of worker 3, computed on version 7 with 10 samples."""
    update = Update(payload, version=7, samples=10)
    return PushMessage(3, 5, 0xDEADBEEF, update, TIMING, gap_seconds=0.75)


def generated(**fields: Any) -> ps_pb2.ExchangeRequest:
    """The same push as a generated class; fields override its own."""
    values: dict[str, Any] = {
        "worker": 3,
        "sequence": 5,
        "fingerprint": 0xDEADBEEF,
        "version": 7,
        "samples": 10,
        "steps": 1,
        "timing": ps_pb2.Timing(
            compute_seconds=0.5,
            late_seconds=0.25,
            think_seconds=1.5,
            transfer_seconds=2.0,
            blocked_seconds=0.125,
        ),
        "gap_seconds": 0.75,
        "payload": ps_pb2.Payload(kind=1, sizes=[4]),
    }
    return ps_pb2.ExchangeRequest(**(values | fields))


ONE = b"\0\0\x80?"
INDICES, VALUES = bytes.fromhex("00000000 02010000"), bytes.fromhex("0000803f 000000c0")


def frame(*arrays: bytes, **fields: Any) -> bytes:
    """The frame of the generated push; by default with the dense payload 1.0."""
    return join(generated(**fields), arrays or (ONE,))


def test_a_sparse_push_has_its_arrays_one_after_the_other() -> None:
    encoded = encode_push(push(sparse({0: 1.0, 258: -2.0})))
    assert encoded.payload_bytes == 2 * 8
    head, arrays = split(ps_pb2.ExchangeRequest, encoded.data)
    assert head == generated(payload=ps_pb2.Payload(kind=2, sizes=[8, 8]))
    assert bytes(arrays) == INDICES + VALUES


def test_a_dense_push_has_its_values() -> None:
    encoded = encode_push(push(dense(1.0)))
    assert encoded.payload_bytes == 4
    assert encoded.data == frame()


def test_what_the_contract_describes_is_read() -> None:
    payload = ps_pb2.Payload(kind=2, sizes=[8, 8])
    read = decode_push(frame(INDICES, VALUES, payload=payload))
    assert (read.worker, read.sequence, read.fingerprint) == (3, 5, 0xDEADBEEF)
    assert (read.update.version, read.update.samples, read.timing) == (7, 10, TIMING)
    assert read.gap_seconds == 0.75
    assert isinstance(read.update.payload, Sparse)
    assert read.update.payload.indices.tolist() == [0, 258]
    assert read.update.payload.values.tolist() == [1.0, -2.0]
    assert read.payload_bytes == 16


def test_an_update_without_entries() -> None:
    encoded = encode_push(push(sparse({})))
    read = decode_push(encoded.data)
    assert (encoded.payload_bytes, read.payload_bytes) == (0, 0)
    assert isinstance(read.update.payload, Sparse)
    assert read.update.payload.indices.size == read.update.payload.values.size == 0


@pytest.mark.parametrize(("encoding", "width"), [("packed", 4), ("packed16", 2)])
def test_a_packed_push_survives_a_round_trip(encoding: Encoding, width: int) -> None:
    sent = sparse({0: 1.0, 258: -2.0})
    encoded = encode_push(push(sent), encoding)
    head, data = split(ps_pb2.ExchangeRequest, encoded.data)
    packed = head.payload
    assert (packed.kind, packed.entries, packed.value_bytes) == (2, 2, width)
    # Planes of two bytes behind four of their length, of indices and of values; one byte of bits.
    assert encoded.payload_bytes == len(data) == 6 * (4 + width) + 5
    read = decode_push(encoded.data, encoding, size=259)
    assert read.payload_bytes == encoded.payload_bytes
    assert isinstance(read.update.payload, Sparse)
    assert read.update.payload.indices.tolist() == [0, 258]
    assert read.update.payload.values.tolist() == [1.0, -2.0]
    assert (read.worker, read.update.version, read.timing) == (3, 7, TIMING)
    with pytest.raises(MalformedError, match="2 packed entries, for a model of 1"):
        decode_push(encoded.data, encoding, size=1)


def test_saturated_values_are_reported() -> None:
    sent = replace(push(sparse({0: 65504.0, 3: 1.0})), saturated=1)
    data = encode_push(sent, "packed16").data
    assert decode_push(data, "packed16", size=4).saturated == 1
    data = encode_push(replace(sent, saturated=3), "packed16").data
    with pytest.raises(MalformedError, match="3 saturated values of 2"):
        decode_push(data, "packed16", size=4)


def test_a_decoded_payload_is_a_view() -> None:
    data = encode_push(push(dense(*range(1000)))).data
    values = decode_push(data).update.payload.values
    assert np.shares_memory(values, np.frombuffer(data, np.uint8))
    assert not values.flags.writeable


@settings(deadline=None, derandomize=True, database=None)
@given(
    st.dictionaries(st.integers(0, 2**31 - 1), st.floats(width=32), max_size=40),
    st.integers(0, 2**31 - 1),
    st.integers(0, 2**63 - 1),
)
def test_any_sparse_push_survives_a_round_trip(
    entries: dict[int, float], worker: int, number: int
) -> None:
    update = Update(sparse(entries), version=number, samples=worker)
    encoded = encode_push(PushMessage(worker, number, 2**64 - 1, update, Timing()))
    read = decode_push(encoded.data)
    assert (read.worker, read.sequence, read.update.version) == (worker, number, number)
    assert (read.fingerprint, read.update.samples) == (2**64 - 1, worker)
    payload = read.update.payload
    assert isinstance(payload, Sparse)
    assert payload.indices.tobytes() == sparse(entries).indices.tobytes()
    assert payload.values.tobytes() == sparse(entries).values.tobytes()
    assert encoded.payload_bytes == read.payload_bytes == 8 * len(entries)


def test_newer_fields_are_ignored() -> None:
    newer = bytes.fromhex("ba3801 78")  # field 903, one byte
    head = generated().SerializeToString() + newer
    read = decode_push(len(head).to_bytes(4, "little") + head + ONE)
    assert read.worker == 3
    assert read.update.payload.values.tolist() == [1.0]


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (None, "a payload of kind 0, packed or unknown"),
        (ps_pb2.Payload(kind=9, sizes=[4]), "a payload of kind 9, packed or unknown"),
        (ps_pb2.Payload(kind=1, sizes=[4], value_bytes=4), "a payload of kind 1, packed"),
        (ps_pb2.Payload(kind=1), r"arrays of \[\] bytes in 4, expected the 1 of a Dense"),
        (ps_pb2.Payload(kind=1, sizes=[3]), r"arrays of \[3\] bytes in 4, expected the 1"),
        (ps_pb2.Payload(kind=1, sizes=[2**64 - 1]), "bytes in 4, expected the 1"),
        (ps_pb2.Payload(kind=1, sizes=[4, 0]), r"arrays of \[4, 0\] bytes in 4, expected the 1"),
        (ps_pb2.Payload(kind=2, sizes=[3, 1]), "3 bytes of 4-byte numbers"),
    ],
)
def test_impossible_payloads_are_refused(payload: ps_pb2.Payload | None, reason: str) -> None:
    with pytest.raises(MalformedError, match=reason):
        decode_push(frame(payload=payload))


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (generated(timing=ps_pb2.Timing(compute_seconds=-1)), "expected finite seconds >= 0"),
        (generated(timing=ps_pb2.Timing(late_seconds=math.nan)), "finite"),
        (generated(timing=ps_pb2.Timing(blocked_seconds=math.inf)), "finite"),
        (generated(gap_seconds=-1), "a gap of -1.0 s: expected"),
        (generated(worker=2**31), "worker 2147483648"),
        (generated(samples=2**31), "2147483648 samples"),
        (generated(sequence=2**63), "push 9223372036854775808"),
        (generated(version=2**63), "version 9223372036854775808"),
    ],
)
def test_impossible_pushes_are_refused(message: ps_pb2.ExchangeRequest, reason: str) -> None:
    with pytest.raises(MalformedError, match=reason):
        decode_push(join(message, [ONE]))


STANDING = (
    NO_STANDING,
    StandingOrders(1, Orders(4, 1.5, 32)),
    StandingOrders(7, Orders(batch_size=8), 2.5),
)


@pytest.mark.parametrize("standing", STANDING)
def test_replies_survive_a_round_trip(standing: StandingOrders) -> None:
    reply = Reply(dense(1.5, -2.5), version=9, note={"least": 4.0})
    sent = Delivery(reply, time=3.25, blocked=0.5, standing=standing)
    encoded = encode_delivery(sent)
    assert encoded.payload_bytes == 8
    message, arrays = split(ps_pb2.ModelReply, encoded.data)
    assert (message.version, message.time_seconds, message.blocked_seconds) == (9, 3.25, 0.5)
    assert bytes(arrays) == bytes.fromhex("0000c03f 000020c0")
    read = decode_delivery(encoded.data)
    assert read.reply is not None
    assert read.reply.model.values.tolist() == [1.5, -2.5]
    assert (read.reply.version, read.standing) == (9, standing)
    assert read.reply.note == {"least": 4.0}
    assert (read.time, read.blocked, read.reply.model.size) == (3.25, 0.5, 8)


@pytest.mark.parametrize("standing", STANDING[1:])
def test_orders_survive_a_round_trip(standing: StandingOrders) -> None:
    assert decode_orders(encode_orders(standing)) == standing
    with pytest.raises(MalformedError, match="not a Orders"):
        decode_orders(b"\xff")


def test_a_message_without_a_step_keeps_its_note() -> None:
    update = Update(Sparse.nothing(), version=7, samples=0, steps=0, note={"vote": 1.0})
    read = decode_push(encode_push(PushMessage(3, 5, 0xDEADBEEF, update, TIMING)).data)
    assert (read.update.steps, read.update.samples) == (0, 0)
    assert (read.update.note, read.payload_bytes) == ({"vote": 1.0}, 0)


def test_more_notes_than_any_algorithm_sends_are_refused() -> None:
    with pytest.raises(MalformedError, match="65 notes, expected at most 64"):
        decode_push(frame(note={str(n): 0.0 for n in range(65)}))


def test_a_reply_that_says_stop_has_no_model() -> None:
    encoded = encode_delivery(Delivery(None, time=8.0))
    assert encoded.payload_bytes == 0
    assert split(ps_pb2.ModelReply, encoded.data)[0].stop
    read = decode_delivery(encoded.data)
    assert (read.reply, read.time) == (None, 8.0)


def test_snapshots_survive_a_round_trip() -> None:
    data = encode_snapshot(Snapshot(4, 1.5, final=True, model=dense(1.0, 2.0)))
    read = decode_snapshot(data)
    assert (read.version, read.time, read.final) == (4, 1.5, True)
    assert read.model.values.tolist() == [1.0, 2.0]
    reply = ps_pb2.SnapshotReply(payload=ps_pb2.Payload(kind=2, sizes=[0, 0]))
    with pytest.raises(MalformedError, match="a Sparse payload, expected Dense"):
        decode_snapshot(join(reply, ()))
