"""What the clock's process and those that compute gradients tell each other, kept small.

Arrays travel beside the messages, in a row of the shared memory. What is said for every update goes
as a few numbers in fixed places, all else as a pickle behind another first byte.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from testbed.algorithms.base import Orders, Update
from testbed.compress.payload import Dense, Payload, Sparse, Vector
from testbed.models import Evaluation
from testbed.simulate.device import Cycle

NO_ORDERS = Orders()
PICKLED = b"\xff"
DENSE = -1

_ORDER = struct.Struct("<xqddqq")
_RESULT = struct.Struct("<xqqdddqqq")


class Loan(NamedTuple):
    """A reply that was handed to a worker, with a row that is the worker's until its result is out.

    Attributes:
        row: number of the row.
        version: the reply's version.
        orders: the reply's orders.
        part: the reply's model where it is not dense; a dense one stands in the row.
    """

    row: int
    version: int
    orders: Orders
    part: Payload | None


class Order(NamedTuple):
    """Go on with a worker from a reply.

    Attributes:
        worker: whose reply it is.
        now: emulated time at which it arrived.
        think: the next draw of the think law.
        loan: the reply.
    """

    worker: int
    now: float
    think: float
    loan: Loan


class Result(NamedTuple):
    """A cycle, with its update's payload in the row if it fits in there.

    Attributes:
        entries: how many entries of a sparse payload stand in the row, values and then indices;
            None for a dense one.
        payload: a sparse one that does not fit; it takes twice as much room as a dense one.
        version: the update's.
        samples: the update's.
    The others are those of Cycle.
    """

    worker: int
    sequence: int
    push_at: float
    compute_seconds: float
    think_seconds: float
    version: int
    samples: int
    entries: int | None
    payload: Payload | None

    @property
    def fills_row(self) -> bool:
        """Whether the update is a dense one, which takes all of the row."""
        return self.entries is None and self.payload is None


class Examine(NamedTuple):
    """Evaluate the model in the process's last row, on this many test images (all if None)."""

    images: NDArray[np.int64] | None


def orders_bytes(orders: Sequence[Order] | Examine) -> bytes:
    """Orders as they go through the pipe."""
    if isinstance(orders, Examine) or not all(_is_plain(order) for order in orders):
        return PICKLED + pickle.dumps(orders)
    return b"".join(
        [_ORDER.pack(worker, now, think, *loan[:2]) for worker, now, think, loan in orders]
    )


def orders_of(data: bytes) -> Sequence[Order] | Examine:
    """What ``orders_bytes`` made bytes of."""
    if data[:1] == PICKLED:
        orders: Sequence[Order] | Examine = pickle.loads(data[1:])
        return orders
    return [
        Order(worker, now, think, Loan(row, version, NO_ORDERS, None))
        for worker, now, think, row, version in _ORDER.iter_unpack(data)
    ]


def results_bytes(results: Sequence[Result] | Evaluation) -> bytes:
    """Results as they go through the pipe."""
    if isinstance(results, Evaluation) or any(one.payload is not None for one in results):
        return PICKLED + pickle.dumps(results)
    return b"".join(
        [_RESULT.pack(*one[:7], DENSE if one.entries is None else one.entries) for one in results]
    )


def results_of(data: bytes) -> Sequence[Result] | Evaluation:
    """What ``results_bytes`` made bytes of."""
    if data[:1] == PICKLED:
        results: Sequence[Result] | Evaluation = pickle.loads(data[1:])
        return results
    return [
        Result._make((*numbers, None if entries == DENSE else entries, None))
        for *numbers, entries in _RESULT.iter_unpack(data)
    ]


def _is_plain(order: Order) -> bool:
    return order.loan.part is None and order.loan.orders == NO_ORDERS


def pack(cycle: Cycle, row: Vector) -> Result:
    """The cycle as it goes through the pipe; its payload goes through the row."""
    payload = cycle.update.payload
    entries, apart = None, None
    if isinstance(payload, Dense):
        row[:] = payload.values
    elif 2 * payload.values.size > row.size:
        apart = payload
    else:
        entries = payload.values.size
        row[:entries] = payload.values
        row[entries : 2 * entries] = payload.indices.view(np.float32)
    return Result(
        *(cycle.worker, cycle.sequence, cycle.push_at, cycle.compute_seconds, cycle.think_seconds),
        *(cycle.update.version, cycle.update.samples, entries, apart),
    )


def unpack(result: Result, row: Vector) -> Cycle:
    """The cycle that was packed; the row may then be used again."""
    payload = result.payload
    if payload is None:
        entries = result.entries
        if entries is None:
            payload = Dense(row.copy())
        else:
            indices = row[entries : 2 * entries].view(np.int32).copy()
            payload = Sparse(indices, row[:entries].copy())
    return Cycle(
        worker=result.worker,
        sequence=result.sequence,
        update=Update(payload, result.version, result.samples),
        push_at=result.push_at,
        compute_seconds=result.compute_seconds,
        think_seconds=result.think_seconds,
    )
