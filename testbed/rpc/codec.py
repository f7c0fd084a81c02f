"""Encodes and decodes messages; the only module that counts payload bytes.

Bulk fields are written from and read as views, so encoding copies a model once and decoding not at
all. All other fields go through the generated classes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from google.protobuf.message import DecodeError, Message

from testbed.algorithms.base import Orders, Reply, Update
from testbed.algorithms.frame.effects import NO_STANDING, StandingOrders
from testbed.algorithms.frame.record import Intake, Timing
from testbed.payloads import KINDS, Array, Dense, Packable, Payload
from testbed.payloads.encodings import Encoding, pack, unpack, value_bytes
from testbed.rpc._pb import ps_pb2
from testbed.rpc.messages import Delivery, PushMessage, Snapshot
from testbed.rpc.shared import SharedSamples
from testbed.rpc.wire import MalformedError, bytes_fields, cut, header

ATTEMPT, PAYLOAD = 14, 15
PACKED = 15  # of a Payload
LARGEST_COUNT = 2**31 - 1  # the largest value in the record of updates
LARGEST_NUMBER = 2**63 - 1
MAX_NOTES = 64

_NOTHING = memoryview(b"")
_KINDS = {kind.NUMBER: kind for kind in KINDS}

M = TypeVar("M", bound=Message)


@dataclass(frozen=True)
class Encoded:
    """An encoded message, and the number of its bytes that are encoded payload."""

    data: bytes
    payload_bytes: int


def parse(kind: type[M], data: bytes) -> M:
    """Decode a message without bulk fields.

    Raises:
        MalformedError: the bytes are not such a message.
    """
    try:
        return kind.FromString(data)
    except DecodeError as error:
        raise MalformedError(f"not a {kind.__name__}: {error}") from None


def encode_push(push: PushMessage, encoding: Encoding = "raw") -> Encoded:
    """Encode an ExchangeRequest; ignores ``push.payload_bytes``."""
    head = ps_pb2.ExchangeRequest(
        worker=push.worker,
        sequence=push.sequence,
        fingerprint=push.fingerprint,
        version=push.update.version,
        samples=push.update.samples,
        steps=push.update.steps,
        note=push.update.note,
        attempt=push.attempt,
        saturated=push.saturated,
        timing=ps_pb2.Timing(**push.timing._asdict()),
        gap_seconds=push.gap_seconds,
        keys=push.wants_keys,
    )
    if push.intake is not None:
        head.intake.CopyFrom(ps_pb2.Intake(**push.intake._asdict()))
    if push.shared is not None:
        head.shared.CopyFrom(push.shared.message())
    if encoding == "raw":
        return _join(head, push.update.payload)
    return _join_packed(head, push.update.payload, encoding)


def decode_push(data: bytes, encoding: Encoding = "raw", *, size: int = 0) -> PushMessage:
    """Decode an ExchangeRequest, without checking that it fits the model and the training.

    Args:
        data: the message.
        encoding: the encoding that its payload must use.
        size: size of the model; a packed payload with more entries is not unpacked.

    Raises:
        MalformedError: the bytes are not such a message, or a number is out of range.
    """
    rest, bulk = cut(data, PAYLOAD)
    head = parse(ps_pb2.ExchangeRequest, rest)
    if encoding == "raw":
        payload = _decode_payload(bulk)
        payload_bytes = payload.size
    else:
        payload, payload_bytes = _decode_packed(bulk, encoding, size)
    timing = _timing(head.timing)
    intake = _intake(head.intake) if head.HasField("intake") else None
    shared = SharedSamples.of(head.shared) if head.HasField("shared") else None
    _check_numbers(head, timing, rounded=payload.entries if encoding == "packed16" else 0)
    return PushMessage(
        worker=head.worker,
        sequence=head.sequence,
        fingerprint=head.fingerprint,
        update=Update(
            *(payload, head.version, head.samples, head.steps),
            note=_note(head.note),
            shared=None if shared is None else shared.samples,
        ),
        timing=timing,
        attempt=head.attempt,
        payload_bytes=payload_bytes + (0 if shared is None else shared.payload_bytes),
        gap_seconds=head.gap_seconds,
        saturated=head.saturated,
        intake=intake,
        shared=shared,
        wants_keys=head.keys,
    )


def _timing(message: ps_pb2.Timing) -> Timing:
    return Timing(
        compute_seconds=message.compute_seconds,
        late_seconds=message.late_seconds,
        think_seconds=message.think_seconds,
        transfer_seconds=message.transfer_seconds,
        blocked_seconds=message.blocked_seconds,
        overslept_seconds=message.overslept_seconds,
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
        return Encoded(head.SerializeToString(), 0)
    head.version = reply.version
    shared_bytes = 0
    if delivery.shared is not None:
        head.shared.CopyFrom(delivery.shared.message())
        shared_bytes = delivery.shared.payload_bytes
    if reply.note:
        head.note.update(reply.note)
    if delivery.standing.number:
        head.orders.CopyFrom(_orders(delivery.standing))
    encoded = _join(head, reply.model)
    return Encoded(encoded.data, encoded.payload_bytes + shared_bytes)


def decode_delivery(data: bytes) -> Delivery:
    """Decode a ModelReply.

    Raises:
        MalformedError: the bytes are not such a message.
    """
    rest, bulk = cut(data, PAYLOAD)
    head = parse(ps_pb2.ModelReply, rest)
    if head.stop:
        return Delivery(None, time=head.time_seconds, blocked=head.blocked_seconds)
    shared = SharedSamples.of(head.shared) if head.HasField("shared") else None
    return Delivery(
        Reply(
            *(_decode_payload(bulk), head.version),
            note=_note(head.note),
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
    )


def _standing(message: ps_pb2.Orders) -> StandingOrders:
    def given(field: str) -> Any:
        return getattr(message, field) if message.HasField(field) else None

    orders = Orders(
        local_steps=given("local_steps"),
        commit_interval=given("commit_interval_seconds"),
        batch_size=given("batch_size"),
    )
    return StandingOrders(message.number, orders)


def _note(field: Mapping[str, float]) -> dict[str, float]:
    if len(field) > MAX_NOTES:
        raise MalformedError(f"{len(field)} notes, expected at most {MAX_NOTES}")
    return dict(field) if len(field) else {}


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
    rest, bulk = cut(data, PAYLOAD)
    head = parse(ps_pb2.SnapshotReply, rest)
    model = _decode_payload(bulk)
    if not isinstance(model, Dense):
        raise MalformedError(f"a snapshot with a {type(model).__name__} payload, expected Dense")
    return Snapshot(head.version, head.time_seconds, final=head.final, model=model)


def _join(head: Message, payload: Payload) -> Encoded:
    """Append the bulk field ``payload`` to the message ``head``, with one copy of the arrays."""
    inner: list[bytes | memoryview] = []
    inner_bytes = 0
    for number, (array, kind) in enumerate(zip(payload.arrays, payload.TYPES, strict=True), 1):
        encoded = np.ascontiguousarray(array, kind)
        before = header(number, encoded.nbytes)
        inner += (before, encoded.data)
        inner_bytes += len(before) + encoded.nbytes
    outer = header(payload.NUMBER, inner_bytes)
    start = header(PAYLOAD, len(outer) + inner_bytes)
    return Encoded(b"".join([head.SerializeToString(), start, outer, *inner]), payload.size)


def _join_packed(head: Message, payload: Payload, encoding: Encoding) -> Encoded:
    """Append the packed payload to the message ``head``."""
    width = value_bytes(encoding)
    data = pack(payload, width)
    packed = ps_pb2.Packed(
        kind=payload.NUMBER, entries=payload.entries, value_bytes=width, data=data
    )
    bulk = ps_pb2.Payload(packed=packed).SerializeToString()
    start = header(PAYLOAD, len(bulk))
    return Encoded(b"".join([head.SerializeToString(), start, bulk]), len(data))


def _decode_packed(bulk: memoryview | None, encoding: Encoding, size: int) -> tuple[Payload, int]:
    """Decode a packed payload of at most ``size`` entries; return it and its size in bytes."""
    found = {} if bulk is None else bytes_fields(bulk, (PACKED,))
    if not found:
        raise MalformedError(f"no packed payload: this scenario's encoding is {encoding}")
    packed = parse(ps_pb2.Packed, bytes(found[PACKED]))
    kind, width = _KINDS.get(packed.kind), value_bytes(encoding)
    if kind is None or not issubclass(kind, Packable) or packed.value_bytes != width:
        raise MalformedError(
            f"kind {packed.kind} with values of {packed.value_bytes} bytes is packed, expected a "
            f"known kind with values of {width} bytes: this scenario's encoding is {encoding}"
        )
    if packed.entries > size:
        raise MalformedError(f"{packed.entries} packed entries, for a model of {size}")
    try:
        data = memoryview(packed.data)
        payload = unpack(kind, data, entries=packed.entries, value_bytes=width)
    except ValueError as error:
        raise MalformedError(f"not a packed payload: {error}") from None
    return payload, len(packed.data)


def _decode_payload(bulk: memoryview | None) -> Payload:
    """Decode a payload; its arrays are views."""
    found = {} if bulk is None else bytes_fields(bulk, _KINDS)
    if len(found) != 1:
        raise MalformedError(f"{len(found)} payloads of a known kind, expected one")
    ((number, message),) = found.items()
    kind = _KINDS[number]
    fields = bytes_fields(message, range(1, len(kind.TYPES) + 1))
    return kind.of(
        [_array(fields.get(place, _NOTHING), type_) for place, type_ in enumerate(kind.TYPES, 1)]
    )


def _array(data: memoryview, kind: str) -> Array:
    width = np.dtype(kind).itemsize
    if len(data) % width:
        raise MalformedError(f"{len(data)} bytes of {width}-byte numbers: the last is incomplete")
    return np.frombuffer(data, kind)
