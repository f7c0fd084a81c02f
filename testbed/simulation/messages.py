"""Messages between the clock's process and the processes that compute gradients.

All are pickles. The arrays of a payload are not in the pickle but in a row of the shared memory, if
they fit there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

from testbed.algorithms.base import Reply, Update
from testbed.algorithms.frame.effects import StandingOrders
from testbed.payloads import Payload, Vector
from testbed.simulation.worker import Course, Cycle, Paused

M = TypeVar("M", Reply, Update)

ALIGNMENT = 8
"""Bytes; each array in a row starts at a multiple."""


class Stored(NamedTuple):
    """A reply or an update whose payload is in a row: its kind, and the bytes of each array.

    A payload that does not fit is here, in place of its kind; ``fields`` has the other fields.
    """

    payload: type[Payload] | Payload
    sizes: tuple[int, ...]
    fields: Sequence[Any]


def used(stored: Stored) -> int:
    """Return how many float32 values of its row a message takes."""
    return -(-sum(size + -size % ALIGNMENT for size in stored.sizes) // 4)


class Begin(NamedTuple):
    """Continue a worker from a reply that has arrived, in a row that it owns until its next push.

    Attributes:
        think: the next draw of the think law.
        standing: the orders that came with the reply.
    """

    worker: int
    now: float
    think: float
    row: int
    reply: Stored
    standing: StandingOrders
    course: Course


class Resume(NamedTuple):
    """Continue a worker that may have reached its horizon, in its lent row."""

    worker: int
    row: int
    course: Course


class Restart(NamedTuple):
    """Restart a worker from scratch; its process ended at ``now``."""

    worker: int
    now: float


class Unchanged(NamedTuple):
    """Answer for a worker that was not paused on Resume, or that was restarted."""

    worker: int


Task = Begin | Resume | Restart


def store(message: Reply | Update, row: Vector) -> Stored:
    """Copy the arrays of a message's payload to the row; the payload itself if they do not fit."""
    payload, *fields = vars(message).values()
    kinds, room, start, sizes = payload.TYPES, row.view(np.uint8), 0, []
    arrays = [np.ascontiguousarray(*one) for one in zip(payload.arrays, kinds, strict=True)]
    for array in arrays:
        end = start + array.nbytes
        if end > row.nbytes:
            return Stored(payload.of([array.copy() for array in arrays]), (), fields)
        room[start:end] = array.view(np.uint8)
        sizes.append(array.nbytes)
        start = end + -end % ALIGNMENT
    return Stored(type(payload), tuple(sizes), fields)


def load(kind: type[M], stored: Stored, row: Vector, *, copy: bool = False) -> M:
    """Return the message, with arrays that are views into the row, or copies."""
    payload, sizes, fields = stored
    if isinstance(payload, Payload):
        return kind(payload, *fields)
    room, start, arrays = row.view(np.uint8), 0, []
    for size, type_ in zip(sizes, payload.TYPES, strict=True):
        array = room[start : start + size].view(type_)
        arrays.append(array.copy() if copy else array)
        start += size + -size % ALIGNMENT
    return kind(payload.of(arrays), *fields)


class Result(NamedTuple):
    """A cycle, with its update in ``stored``; ``fields`` has the cycle's other fields."""

    worker: int
    stored: Stored
    fields: tuple[Any, ...]

    @classmethod
    def of(cls, cycle: Cycle, row: Vector) -> Result:
        """Store a cycle's update in the row."""
        return cls(cycle.worker, store(cycle.update, row), cycle[:5] + cycle[6:])

    def cycle(self, row: Vector) -> Cycle:
        """Return the cycle; the row may then be reused."""
        update = load(Update, self.stored, row, copy=True)
        return Cycle._make((*self.fields[:5], update, *self.fields[5:]))

    def fills(self, row: Vector) -> bool:
        """Return whether the update fills most of the row, and stays there until due."""
        return 2 * sum(self.stored.sizes) > row.nbytes


Answer = Result | Paused | Unchanged
