"""Messages to and from bytes; the one place where payload bytes are counted.

Bulk fields are written from and read as views, so encoding copies a model once and decoding not at
all. Everything else goes through the generated classes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from google.protobuf.message import DecodeError, Message
from numpy.typing import NDArray

from testbed.algorithms.base import Orders, Reply, Update
from testbed.compress.payload import Dense, Payload, Sparse
from testbed.rpc._pb import ps_pb2
from testbed.rpc.messages import Delivery, Push, Snapshot, Timing
from testbed.rpc.wire import MalformedError, bytes_fields, cut, header

ATTEMPT, PAYLOAD = 14, 15
DENSE, SPARSE = 1, 2
DENSE_VALUES = 1
SPARSE_INDICES, SPARSE_VALUES = 1, 2
LARGEST_COUNT = 2**31 - 1  # what the record of updates has room for
LARGEST_NUMBER = 2**63 - 1

_NOTHING = memoryview(b"")

M = TypeVar("M", bound=Message)


@dataclass(frozen=True)
class Encoded:
    """A message ready to be sent.

    Attributes:
        data: its bytes.
        payload_bytes: how many of them are values and indices.
    """

    data: bytes
    payload_bytes: int


def parse(kind: type[M], data: bytes) -> M:
    """A message without bulk fields.

    Raises:
        MalformedError: the bytes are no such message.
    """
    try:
        return kind.FromString(data)
    except DecodeError as error:
        raise MalformedError(f"not a {kind.__name__}: {error}") from None


def payload_bytes(payload: Payload) -> int:
    """Bytes that a payload's values and indices take on the wire: 4 each."""
    if isinstance(payload, Dense):
        return 4 * payload.values.size
    return 4 * (payload.values.size + payload.indices.size)


def encode_push(push: Push) -> Encoded:
    """An ExchangeRequest; ``push.payload_bytes`` is not looked at."""
    timing = push.timing
    head = ps_pb2.ExchangeRequest(
        worker=push.worker,
        sequence=push.sequence,
        fingerprint=push.fingerprint,
        version=push.update.version,
        samples=push.update.samples,
        attempt=push.attempt,
        timing=ps_pb2.Timing(
            compute_seconds=timing.compute,
            late_seconds=timing.late,
            think_seconds=timing.think,
            transfer_seconds=timing.transfer,
            blocked_seconds=timing.blocked,
        ),
    )
    return _join(head, push.update.payload)


def decode_push(data: bytes) -> Push:
    """An ExchangeRequest. Whether it fits the model and the training is not checked here.

    Raises:
        MalformedError: the bytes are no such message, or a number in it is out of range.
    """
    rest, bulk = cut(data, PAYLOAD)
    head = parse(ps_pb2.ExchangeRequest, rest)
    payload, payload_bytes = _decode_payload(bulk)
    timing = head.timing
    seconds = Timing(
        compute=timing.compute_seconds,
        late=timing.late_seconds,
        think=timing.think_seconds,
        transfer=timing.transfer_seconds,
        blocked=timing.blocked_seconds,
    )
    if not all(0 <= value < math.inf for value in vars(seconds).values()):
        raise MalformedError(f"{seconds}, expected seconds that are finite and not negative")
    if max(head.worker, head.samples) > LARGEST_COUNT:
        raise MalformedError(f"worker {head.worker}, {head.samples} samples: above {LARGEST_COUNT}")
    if max(head.sequence, head.version) > LARGEST_NUMBER:
        raise MalformedError(
            f"push {head.sequence}, version {head.version}: above {LARGEST_NUMBER}"
        )
    return Push(
        worker=head.worker,
        sequence=head.sequence,
        fingerprint=head.fingerprint,
        update=Update(payload, version=head.version, samples=head.samples),
        timing=seconds,
        attempt=head.attempt,
        payload_bytes=payload_bytes,
    )


def encode_delivery(delivery: Delivery) -> Encoded:
    """A ModelReply; ``delivery.payload_bytes`` is not looked at."""
    reply = delivery.reply
    head = ps_pb2.ModelReply(
        stop=reply is None, time_seconds=delivery.time, blocked_seconds=delivery.blocked
    )
    if reply is None:
        return Encoded(head.SerializeToString(), 0)
    head.version = reply.version
    if reply.orders != Orders():
        head.orders.CopyFrom(
            ps_pb2.Orders(
                local_steps=reply.orders.local_steps,
                commit_interval_seconds=reply.orders.commit_interval,
                batch_size=reply.orders.batch_size,
            )
        )
    return _join(head, reply.model)


def decode_delivery(data: bytes) -> Delivery:
    """A ModelReply.

    Raises:
        MalformedError: the bytes are no such message.
    """
    rest, bulk = cut(data, PAYLOAD)
    head = parse(ps_pb2.ModelReply, rest)
    if head.stop:
        return Delivery(None, time=head.time_seconds, blocked=head.blocked_seconds)
    model, payload_bytes = _decode_payload(bulk)
    orders = head.orders
    return Delivery(
        Reply(
            model,
            version=head.version,
            orders=Orders(
                local_steps=orders.local_steps if orders.HasField("local_steps") else None,
                commit_interval=(
                    orders.commit_interval_seconds
                    if orders.HasField("commit_interval_seconds")
                    else None
                ),
                batch_size=orders.batch_size if orders.HasField("batch_size") else None,
            ),
        ),
        time=head.time_seconds,
        blocked=head.blocked_seconds,
        payload_bytes=payload_bytes,
    )


def encode_snapshot(snapshot: Snapshot) -> bytes:
    """A SnapshotReply."""
    head = ps_pb2.SnapshotReply(
        version=snapshot.version, time_seconds=snapshot.time, final=snapshot.final
    )
    return _join(head, snapshot.model).data


def decode_snapshot(data: bytes) -> Snapshot:
    """A SnapshotReply, its values a view of ``data``.

    Raises:
        MalformedError: the bytes are no such message, or the payload is not dense.
    """
    rest, bulk = cut(data, PAYLOAD)
    head = parse(ps_pb2.SnapshotReply, rest)
    model, _ = _decode_payload(bulk)
    if not isinstance(model, Dense):
        raise MalformedError("a snapshot with a sparse payload, expected a dense one")
    return Snapshot(head.version, head.time_seconds, final=head.final, model=model)


def _join(head: Message, payload: Payload) -> Encoded:
    """The message ``head`` with the bulk field ``payload`` behind it: one copy of the arrays."""
    if isinstance(payload, Dense):
        kind, arrays = DENSE, {DENSE_VALUES: np.ascontiguousarray(payload.values, "<f4")}
    else:
        kind = SPARSE
        arrays = {
            SPARSE_INDICES: np.ascontiguousarray(payload.indices, "<i4"),
            SPARSE_VALUES: np.ascontiguousarray(payload.values, "<f4"),
        }
    inner: list[bytes | memoryview] = []
    for number, array in arrays.items():
        inner += (header(number, array.nbytes), array.data)
    carried = payload_bytes(payload)
    inner_bytes = carried + sum(len(chunk) for chunk in inner[::2])
    outer = header(kind, inner_bytes)
    start = header(PAYLOAD, len(outer) + inner_bytes)
    return Encoded(b"".join([head.SerializeToString(), start, outer, *inner]), carried)


def _decode_payload(bulk: memoryview | None) -> tuple[Payload, int]:
    """A payload and how many bytes its values and indices take; its arrays are views."""
    kinds = {} if bulk is None else bytes_fields(bulk, (DENSE, SPARSE))
    if len(kinds) != 1:
        raise MalformedError(f"{len(kinds)} payloads of a known kind, expected one")
    if DENSE in kinds:
        values = bytes_fields(kinds[DENSE], (DENSE_VALUES,)).get(DENSE_VALUES, _NOTHING)
        return Dense(_array(values, "<f4")), values.nbytes
    arrays = bytes_fields(kinds[SPARSE], (SPARSE_INDICES, SPARSE_VALUES))
    indices = arrays.get(SPARSE_INDICES, _NOTHING)
    values = arrays.get(SPARSE_VALUES, _NOTHING)
    payload = Sparse(_array(indices, "<i4"), _array(values, "<f4"))
    return payload, indices.nbytes + values.nbytes


def _array(data: memoryview, kind: str) -> NDArray[Any]:
    if len(data) % 4:
        raise MalformedError(f"{len(data)} bytes of 4-byte numbers: one is not complete")
    return np.frombuffer(data, kind)
