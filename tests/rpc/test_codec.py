"""Messages encoded by hand compared with the generated classes, both ways."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
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
    parse,
)
from testbed.rpc.messages import Delivery, PushMessage, Snapshot
from testbed.rpc.wire import MalformedError, header

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
        "payload": ps_pb2.Payload(dense=ps_pb2.Dense(values=b"\0\0\x80?")),
    }
    return ps_pb2.ExchangeRequest(**(values | fields))


def test_the_generated_class_reads_a_sparse_push() -> None:
    encoded = encode_push(push(sparse({0: 1.0, 258: -2.0})))
    assert encoded.payload_bytes == 2 * 8
    message = ps_pb2.ExchangeRequest.FromString(encoded.data)
    indices, values = bytes.fromhex("00000000 02010000"), bytes.fromhex("0000803f 000000c0")
    inner = ps_pb2.Sparse(indices=indices, values=values)
    assert message == generated(payload=ps_pb2.Payload(sparse=inner))


def test_the_generated_class_reads_a_dense_push() -> None:
    encoded = encode_push(push(dense(1.0)))
    assert encoded.payload_bytes == 4
    assert ps_pb2.ExchangeRequest.FromString(encoded.data) == generated()


def test_messages_of_the_generated_class_are_read() -> None:
    indices, values = bytes.fromhex("00000000 02010000"), bytes.fromhex("0000803f 000000c0")
    inner = ps_pb2.Sparse(indices=indices, values=values)
    data = generated(payload=ps_pb2.Payload(sparse=inner)).SerializeToString()
    read = decode_push(data)
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
    data = generated(payload=ps_pb2.Payload(sparse=ps_pb2.Sparse())).SerializeToString()
    assert isinstance(decode_push(data).update.payload, Sparse)


@pytest.mark.parametrize(("encoding", "width"), [("packed", 4), ("packed16", 2)])
def test_a_packed_push_survives_a_round_trip(encoding: Encoding, width: int) -> None:
    sent = sparse({0: 1.0, 258: -2.0})
    encoded = encode_push(push(sent), encoding)
    packed = ps_pb2.ExchangeRequest.FromString(encoded.data).payload.packed
    assert (packed.kind, packed.entries, packed.value_bytes) == (2, 2, width)
    # Planes of two bytes behind four of their length, of indices and of values; one byte of bits.
    assert encoded.payload_bytes == len(packed.data) == 6 * (4 + width) + 5
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
    newer = header(14, 3) + b"new" + header(900, 1) + b"x"
    payload = header(9, 2) + b"zz" + header(9, 2) + b"zz" + header(1, 6)
    values = header(1, 4) + b"\0\0\x80?"
    data = generated(payload=None).SerializeToString() + newer
    data += header(15, len(payload) + len(values)) + payload + values + newer
    read = decode_push(data)
    assert read.worker == 3
    assert read.update.payload.values.tolist() == [1.0]


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (generated(payload=None), "0 payloads of a known kind, expected one"),
        (generated(payload=ps_pb2.Payload()), "0 payloads of a known kind"),
        (
            generated(payload=ps_pb2.Payload(dense=ps_pb2.Dense(values=b"12345"))),
            "5 bytes of 4-byte numbers",
        ),
        (
            generated(payload=ps_pb2.Payload(sparse=ps_pb2.Sparse(indices=b"1"))),
            "1 bytes of 4-byte numbers",
        ),
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
        decode_push(message.SerializeToString())


def test_two_payloads_are_refused() -> None:
    data = generated().SerializeToString()
    with pytest.raises(MalformedError, match="field 15 occurs twice"):
        decode_push(data + header(15, 0))
    both = header(1, 0) + header(2, 0)
    with pytest.raises(MalformedError, match="2 payloads"):
        decode_push(header(15, len(both)) + both)


STANDING = (
    NO_STANDING,
    StandingOrders(1, Orders(4, 1.5, 32)),
    StandingOrders(7, Orders(batch_size=8)),
)


@pytest.mark.parametrize("standing", STANDING)
def test_replies_survive_a_round_trip(standing: StandingOrders) -> None:
    reply = Reply(dense(1.5, -2.5), version=9, note={"least": 4.0})
    sent = Delivery(reply, time=3.25, blocked=0.5, standing=standing)
    encoded = encode_delivery(sent)
    assert encoded.payload_bytes == 8
    message = ps_pb2.ModelReply.FromString(encoded.data)
    assert (message.version, message.time_seconds, message.blocked_seconds) == (9, 3.25, 0.5)
    assert message.payload.dense.values == bytes.fromhex("0000c03f 000020c0")
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
        decode_push(generated(note={str(n): 0.0 for n in range(65)}).SerializeToString())


def test_a_reply_that_says_stop_has_no_model() -> None:
    encoded = encode_delivery(Delivery(None, time=8.0))
    assert encoded.payload_bytes == 0
    assert ps_pb2.ModelReply.FromString(encoded.data).stop
    read = decode_delivery(encoded.data)
    assert (read.reply, read.time) == (None, 8.0)


def test_snapshots_survive_a_round_trip() -> None:
    data = encode_snapshot(Snapshot(4, 1.5, final=True, model=dense(1.0, 2.0)))
    read = decode_snapshot(data)
    assert (read.version, read.time, read.final) == (4, 1.5, True)
    assert read.model.values.tolist() == [1.0, 2.0]
    reply = ps_pb2.SnapshotReply(payload=ps_pb2.Payload(sparse=ps_pb2.Sparse()))
    with pytest.raises(MalformedError, match="a Sparse payload, expected Dense"):
        decode_snapshot(reply.SerializeToString())


def test_small_messages_are_parsed_or_refused() -> None:
    request = ps_pb2.JoinRequest(worker=3, fingerprint=1)
    assert parse(ps_pb2.JoinRequest, request.SerializeToString()) == request
    with pytest.raises(MalformedError, match="not a JoinRequest"):
        parse(ps_pb2.JoinRequest, b"\xff")
