"""What the clock's process and those that compute gradients tell each other, kept small.

Arrays travel beside the messages, in the worker's row of the shared memory.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from testbed.algorithms.base import Orders, Update
from testbed.compress.payload import Dense, Payload, Sparse, Vector
from testbed.simulate.device import Cycle


class Order(NamedTuple):
    """Go on with a worker from a reply.

    Attributes:
        worker: whose reply it is.
        now: emulated time at which it arrived.
        think: the next draw of the think law.
        version: the reply's version.
        orders: the reply's orders.
        part: the reply's model where it is not dense; a dense one stands in the worker's row.
    """

    worker: int
    now: float
    think: float
    version: int
    orders: Orders
    part: Payload | None


class Result(NamedTuple):
    """A cycle, with its update's payload in the worker's row if it fits in there.

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


class Examine(NamedTuple):
    """Evaluate the model in the process's last row, on this many test images (all if None)."""

    images: NDArray[np.int64] | None


def pack(cycle: Cycle, row: Vector) -> Result:
    """The cycle as it goes through the pipe; its payload goes through the worker's row."""
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
