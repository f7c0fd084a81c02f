"""Encodes and decodes messages; the only module that counts payload bytes.

Arrays are written from and read as views, so encoding copies a model once and decoding not at all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from testbed.algorithms.base import Orders, Reply, Update
from testbed.algorithms.frame.effects import NO_STANDING, StandingOrders
from testbed.algorithms.frame.record import Intake, Timing
from testbed.payloads import KINDS, Array, Dense, Packable, Payload
from testbed.payloads.encodings import Encoding, pack, unpack, value_bytes
from testbed.payloads.notes import note_bytes
from testbed.rpc._pb import ps_pb2
from testbed.rpc.messages import Delivery, PushMessage, Snapshot
from testbed.rpc.notes import read_note, write_note
from testbed.rpc.shared import SharedSamples
from testbed.rpc.wire import MalformedError, join, parse, split

LARGEST_COUNT = 2**31 - 1  # the largest value in the record of updates
LARGEST_NUMBER = 2**63 - 1

Kinds = Sequence[type[Payload]]
_KINDS = {kind.NUMBER: kind for kind in KINDS}


@dataclass(frozen=True)
class Encoded:
    """An encoded message, and the number of its bytes that are encoded payload."""

    data: bytes
    payload_bytes: int


def encode_push(push: PushMessage, encoding: Encoding = "raw") -> Encoded:
    """Encode an ExchangeRequest; ignores ``push.payload_bytes``."""
    head = ps_pb2.ExchangeRequest(
        worker=push.worker,
        sequence=push.sequence,
        fingerprint=push.fingerprint,
        version=push.update.version,
        samples=push.update.samples,
        steps=push.update.steps,
        attempt=push.attempt,
        saturated=push.saturated,
        timing=ps_pb2.Timing(**push.timing._asdict()),
        gap_seconds=push.gap_seconds,
        keys=push.wants_keys,
    )
    noted = write_note(head, push.update.note)
    if push.intake is not None:
        head.intake.CopyFrom(ps_pb2.Intake(**push.intake._asdict()))
    if push.shared is not None:
        head.shared.CopyFrom(push.shared.message())
    if encoding == "raw":
        return _join(head, push.update.payload, noted)
    return _join_packed(head, push.update.payload, value_bytes(encoding), noted)


def decode_push(
    data: bytes, encoding: Encoding = "raw", *, size: int = 0, own: Kinds = ()
) -> PushMessage:
    """Decode an ExchangeRequest, without checking that it fits the model and the training.

    Args:
        data: the message.
        encoding: the encoding that its payload must use.
        size: size of the model; a packed payload with more entries is not unpacked.
        own: the algorithm's own kinds of payload.

    Raises:
        MalformedError: the bytes are not such a message, or a number is out of range.
    """
    head, arrays = split(ps_pb2.ExchangeRequest, data)
    if encoding == "raw":
        payload = _decode_payload(head.payload, arrays, own)
    else:
        payload = _decode_packed(head.payload, arrays, encoding, size)
    timing = Timing(*(getattr(head.timing, name) for name in Timing._fields))
    intake = _intake(head.intake) if head.HasField("intake") else None
    shared = SharedSamples.of(head.shared) if head.HasField("shared") else None
    _check_numbers(head, timing, rounded=payload.entries if encoding == "packed16" else 0)
    note = read_note(head)
    payload_bytes = len(arrays) + note_bytes(note)
    payload_bytes += 0 if shared is None else shared.payload_bytes
    return PushMessage(
        worker=head.worker,
        sequence=head.sequence,
        fingerprint=head.fingerprint,
        update=Update(
            *(payload, head.version, head.samples, head.steps),
            note=note,
            shared=None if shared is None else shared.samples,
        ),
        timing=timing,
        attempt=head.attempt,
        payload_bytes=len(arrays)
        + note_bytes(note)
        + (0 if shared is None else shared.payload_bytes),
        gap_seconds=head.gap_seconds,
        saturated=head.saturated,
        intake=intake,
        shared=shared,
        wants_keys=head.keys,
    )


def _intake(message: ps_pb2.Intake) -> Intake:
    """Decode the state of a stream.

    Raises:
        MalformedError: a number is out of range.
    """
    intake = Intake(*(getattr(message, name) for name in Intake._fields))
    if not all(0 <= number <= LARGEST_NUMBER for number in intake):
        raise MalformedError(f"{intake}: expected finite numbers >= 0")
    return intake


def _check_numbers(head: ps_pb2.ExchangeRequest, timing: Timing, *, rounded: int) -> None:
    """Refuse a push with impossible numbers; ``rounded`` is the number of rounded values.

    Raises:
        MalformedError: a number is out of range; names it.
    """
    seconds = (*timing, head.gap_seconds)
    if not (min(seconds) >= 0 and sum(seconds) < math.inf):  # a NaN makes the sum NaN
        found = f"{timing}, a gap of {head.gap_seconds} s"
        raise MalformedError(f"{found}: expected finite seconds >= 0")
    if max(head.worker, head.samples, head.steps) > LARGEST_COUNT:
        found = f"worker {head.worker}, {head.samples} samples, {head.steps} steps"
        raise MalformedError(f"{found}: expected at most {LARGEST_COUNT}")
    if max(head.sequence, head.version) > LARGEST_NUMBER:
        found = f"push {head.sequence}, version {head.version}"
        raise MalformedError(f"{found}: expected at most {LARGEST_NUMBER}")
    if head.saturated > rounded:
        raise MalformedError(f"{head.saturated} saturated values of {rounded} rounded values")


def encode_delivery(delivery: Delivery) -> Encoded:
    """Encode a ModelReply."""
    reply = delivery.reply
    head = ps_pb2.ModelReply(
        stop=reply is None, time_seconds=delivery.time, blocked_seconds=delivery.blocked
    )
    if reply is None:
        return Encoded(join(head, ()), 0)
    head.version = reply.version
    shared_bytes = 0
    if delivery.shared is not None:
        head.shared.CopyFrom(delivery.shared.message())
        shared_bytes = delivery.shared.payload_bytes
    noted = write_note(head, reply.note)
    if delivery.standing.number:
        head.orders.CopyFrom(_orders(delivery.standing))
    encoded = _join(head, reply.model, noted)
    return Encoded(encoded.data, encoded.payload_bytes + shared_bytes)


def decode_delivery(data: bytes, own: Kinds = ()) -> Delivery:
    """Decode a ModelReply; ``own`` are the algorithm's own kinds of payload.

    Raises:
        MalformedError: the bytes are not such a message.
    """
    head, arrays = split(ps_pb2.ModelReply, data)
    if head.stop:
        return Delivery(None, time=head.time_seconds, blocked=head.blocked_seconds)
    shared = SharedSamples.of(head.shared) if head.HasField("shared") else None
    return Delivery(
        Reply(
            *(_decode_payload(head.payload, arrays, own), head.version),
            note=read_note(head),
            shared=None if shared is None else shared.samples,
        ),
        time=head.time_seconds,
        blocked=head.blocked_seconds,
        standing=_standing(head.orders) if head.HasField("orders") else NO_STANDING,
        shared=shared,
    )


def encode_orders(standing: StandingOrders) -> bytes:
    """Encode a message of orders."""
    return _orders(standing).SerializeToString()


def decode_orders(data: bytes) -> StandingOrders:
    """Decode a message of orders; see ``parse``."""
    return _standing(parse(ps_pb2.Orders, data))


def _orders(standing: StandingOrders) -> ps_pb2.Orders:
    orders = standing.orders
    return ps_pb2.Orders(
        number=standing.number,
        local_steps=orders.local_steps,
        commit_interval_seconds=orders.commit_interval,
        batch_size=orders.batch_size,
        time_seconds=standing.time,
    )


def _standing(message: ps_pb2.Orders) -> StandingOrders:
    def given(field: str) -> Any:
        return getattr(message, field) if message.HasField(field) else None

    orders = Orders(
        local_steps=given("local_steps"),
        commit_interval=given("commit_interval_seconds"),
        batch_size=given("batch_size"),
    )
    return StandingOrders(message.number, orders, message.time_seconds)


def encode_snapshot(snapshot: Snapshot) -> bytes:
    """Encode a SnapshotReply."""
    head = ps_pb2.SnapshotReply(
        version=snapshot.version, time_seconds=snapshot.time, final=snapshot.final
    )
    return _join(head, snapshot.model).data


def decode_snapshot(data: bytes) -> Snapshot:
    """Decode a SnapshotReply; its values are a view of ``data``.

    Raises:
        MalformedError: the bytes are not such a message, or the payload is not dense.
    """
    head, arrays = split(ps_pb2.SnapshotReply, data)
    model = _decode_payload(head.payload, arrays)
    if not isinstance(model, Dense):
        raise MalformedError(f"a snapshot with a {type(model).__name__} payload, expected Dense")
    return Snapshot(head.version, head.time_seconds, final=head.final, model=model)


def _join(head: Any, payload: Payload, noted: int = 0) -> Encoded:
    """Encode a message with its payload, with one copy of the arrays; its note is ``noted`` long.

    The note's bytes count as payload.
    """
    parts = zip(payload.arrays, payload.TYPES, strict=True)
    arrays = [np.ascontiguousarray(array, kind) for array, kind in parts]
    sizes = [array.nbytes for array in arrays]
    head.payload.CopyFrom(ps_pb2.Payload(kind=payload.NUMBER, sizes=sizes))
    return Encoded(join(head, [array.data for array in arrays]), payload.size + noted)


def _join_packed(head: Any, payload: Payload, width: int, noted: int) -> Encoded:
    data = pack(payload, width)
    head.payload.CopyFrom(
        ps_pb2.Payload(kind=payload.NUMBER, entries=payload.entries, value_bytes=width)
    )
    return Encoded(join(head, [data]), len(data) + noted)


def _decode_packed(
    described: ps_pb2.Payload, data: memoryview, encoding: Encoding, size: int
) -> Payload:
    """Decode a packed payload of at most ``size`` entries."""
    kind, width = _KINDS.get(described.kind), value_bytes(encoding)
    if kind is None or not issubclass(kind, Packable) or described.value_bytes != width:
        raise MalformedError(
            f"a payload of kind {described.kind} with values of {described.value_bytes} bytes, "
            f"expected a known kind packed with values of {width} bytes: this scenario's encoding "
            f"is {encoding}"
        )
    if described.entries > size:
        raise MalformedError(f"{described.entries} packed entries, for a model of {size}")
    try:
        return unpack(kind, data, entries=described.entries, value_bytes=width)
    except ValueError as error:
        raise MalformedError(f"not a packed payload: {error}") from None


def _decode_payload(described: ps_pb2.Payload, data: memoryview, own: Kinds = ()) -> Payload:
    """Decode a payload of a known kind or one of the algorithm's own; its arrays are views."""
    kind, sizes = _KINDS.get(described.kind), described.sizes
    kind = kind or next((one for one in own if described.kind == one.NUMBER), None)
    if kind is None or described.value_bytes:
        raise MalformedError(f"a payload of kind {described.kind}, packed or unknown")
    if len(sizes) != len(kind.TYPES) or sum(sizes) != len(data):
        found = f"arrays of {list(sizes)[:8]} bytes in {len(data)}"
        raise MalformedError(f"{found}, expected the {len(kind.TYPES)} of a {kind.__name__}")
    arrays, start = [], 0
    for type_, size in zip(kind.TYPES, sizes, strict=True):
        arrays.append(_array(data[start : start + size], type_))
        start += size
    return kind.of(arrays)


def _array(data: memoryview, kind: str) -> Array:
    width = np.dtype(kind).itemsize
    if len(data) % width:
        raise MalformedError(f"{len(data)} bytes of {width}-byte numbers: the last is incomplete")
    return np.frombuffer(data, kind)
