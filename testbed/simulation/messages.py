"""Compact messages between the clock's process and the processes that compute gradients.

Arrays are not in the messages but in a row of the shared memory. The frequent messages are packed
as a few numbers in a fixed format, all others as a pickle with a different first byte.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from testbed.algorithms.base import Reply, Update
from testbed.algorithms.frame.effects import NO_STANDING, StandingOrders
from testbed.algorithms.frame.record import Intake
from testbed.errors import TestbedError
from testbed.models import Evaluation
from testbed.payloads import KINDS, Payload, Sparse, Vector
from testbed.simulation.worker import Cycle, Paused, TimedOrders
from testbed.values.state import PlainState

PICKLED = b"\xff"
SIZE = "<i8"
ALIGNMENT = 8
"""Bytes; each array in a row starts at a multiple."""

MAX_ARRAYS = 2
"""If a payload has more arrays, their sizes precede them in the row."""

_TASK = struct.Struct("<xqddqqqqq")
_RESULT = struct.Struct("<xqqdddqqqqqdqqq")
_KINDS = {kind.NUMBER: kind for kind in KINDS}


class Packed(NamedTuple):
    """A payload in a row: the number of its kind, and the bytes of its one or two arrays.

    With more arrays, ``first`` is the size of the array of sizes, ``second`` that of all arrays.
    """

    kind: int
    first: int
    second: int


class Loan(NamedTuple):
    """A reply lent to a worker, with a row that the worker owns until its result is taken out.

    A reply that does not fit in the row is in ``separate``; its payload is in the row if it fits.
    """

    row: int
    version: int
    packed: Packed
    separate: Reply | None = None
    standing: StandingOrders = NO_STANDING


class Begin(NamedTuple):
    """Continue a worker from a reply that has arrived.

    Attributes:
        think: the next draw of the think law.
        horizon: how far the worker may be computed.
        orders: orders between replies, with their arrival times at the worker.
        slow: factor that multiplies the time of steps that start from now on.
    """

    worker: int
    now: float
    think: float
    loan: Loan
    horizon: float = inf
    orders: tuple[TimedOrders, ...] = ()
    slow: float = 1.0


class Resume(NamedTuple):
    """Continue a worker that may have reached its horizon, in its lent row."""

    worker: int
    row: int
    horizon: float
    orders: tuple[TimedOrders, ...]
    slow: float = 1.0


class Restart(NamedTuple):
    """Restart a worker from scratch; its process has ended."""

    worker: int


class Evaluate(NamedTuple):
    """Evaluate the model in the process's last row, on these test images (all if None)."""

    images: NDArray[np.int64] | None


class Save(NamedTuple):
    """Return the states of all workers of the process."""


class Restore(NamedTuple):
    """Restore workers from saved states, by number."""

    workers: Mapping[int, PlainState]


class Saved(NamedTuple):
    """The states of one process's workers; empty in the answer to Restore."""

    workers: Mapping[int, PlainState]


class Unchanged(NamedTuple):
    """Answer for a worker that was not paused on Resume, or that was restarted."""

    worker: int


class Result(NamedTuple):
    """A cycle, with its update's payload in the row if it fits.

    An update that does not fit in the row is in ``separate``; its payload is in the row if it fits.
    """

    worker: int
    sequence: int
    push_at: float
    compute_seconds: float
    think_seconds: float
    version: int
    samples: int
    steps: int
    payload_bytes: int
    saturated: int
    next_step: float
    packed: Packed
    separate: Update | None = None
    intake: Intake | None = None


Task = Begin | Resume | Restart
ControlRequest = Evaluate | Save | Restore
"""Sent alone; its answer is sent alone too."""

Answer = Result | Paused | Unchanged
NOT_PACKED = Packed(0, 0, 0)
IN_ROW = Sparse.nothing()
"""Placeholder for a payload that is in the row."""


def encode_tasks(tasks: Sequence[Task] | ControlRequest) -> bytes:
    """Serialise tasks for the pipe."""
    if isinstance(tasks, ControlRequest) or not all(_is_plain(task) for task in tasks):
        return PICKLED + pickle.dumps(tasks)
    begins = [one for one in tasks if isinstance(one, Begin)]
    return b"".join([_TASK.pack(*one[:3], *one.loan[:2], *one.loan.packed) for one in begins])


def decode_tasks(data: bytes) -> Sequence[Task] | ControlRequest:
    """Deserialise the output of ``encode_tasks``."""
    if data[:1] == PICKLED:
        tasks: Sequence[Task] | ControlRequest = pickle.loads(data[1:])
        return tasks
    return [
        Begin(worker, now, think, Loan(row, version, Packed(*packed)))
        for worker, now, think, row, version, *packed in _TASK.iter_unpack(data)
    ]


def encode_answers(answers: Sequence[Answer] | Evaluation | Saved | TestbedError) -> bytes:
    """Serialise answers, or an error in place of them, for the pipe."""
    if isinstance(answers, Evaluation | Saved | TestbedError) or not all(
        isinstance(one, Result) and one.separate is None and one.intake is None for one in answers
    ):
        return PICKLED + pickle.dumps(answers)
    return b"".join(
        [_RESULT.pack(*one[:11], *one.packed) for one in answers if isinstance(one, Result)]
    )


def decode_answers(data: bytes) -> Sequence[Answer] | Evaluation | Saved:
    """Deserialise the output of ``encode_answers``.

    Raises:
        TestbedError: the sender reported this error.
    """
    if data[:1] == PICKLED:
        answers: Sequence[Answer] | Evaluation | Saved | TestbedError = pickle.loads(data[1:])
        if isinstance(answers, TestbedError):
            raise answers
        return answers
    return [
        Result._make((*numbers[:11], Packed._make(numbers[11:]), None, None))
        for numbers in _RESULT.iter_unpack(data)
    ]


def _is_plain(task: Task) -> bool:
    if isinstance(task, Resume | Restart) or task.orders or (task.horizon, task.slow) != (inf, 1.0):
        return False
    return task.loan.separate is None and task.loan.standing is NO_STANDING


def lend(reply: Reply, row: Vector, number: int, standing: StandingOrders) -> Loan:
    """Lend a reply to a worker; its payload is stored in row ``number``, or copied."""
    packed, separate = _pack(reply.model, row), None
    if packed is None:
        separate = replace(reply, model=_copy(reply.model))
    elif reply.note or reply.shared is not None:
        separate = replace(reply, model=IN_ROW)
    return Loan(number, reply.version, packed or NOT_PACKED, separate, standing)


def borrowed(loan: Loan, row: Vector) -> Reply:
    """Return the reply of a loan; its arrays are views into the row."""
    if loan.separate is None:
        return Reply(_unpack(loan.packed, row), loan.version)
    if loan.packed == NOT_PACKED:
        return loan.separate
    return replace(loan.separate, model=_unpack(loan.packed, row))


def pack(cycle: Cycle, row: Vector) -> Result:
    """Pack a cycle for the pipe; its payload is stored in the row."""
    update, separate = cycle.update, None
    packed = _pack(update.payload, row)
    if packed is None:
        separate = update
    elif update.note or update.shared is not None:
        separate = replace(update, payload=IN_ROW)
    return Result(
        *cycle[:5],
        *(update.version, update.samples, update.steps),
        *(cycle.payload_bytes, cycle.saturated),
        next_step=cycle.next_step,
        packed=packed or NOT_PACKED,
        separate=separate,
        intake=cycle.intake,
    )


def unpack(result: Result, row: Vector) -> Cycle:
    """Unpack a cycle; the row may then be reused."""
    update = result.separate
    if result.packed != NOT_PACKED:
        own = _copy(_unpack(result.packed, row))
        if update is None:
            update = Update(own, result.version, samples=result.samples, steps=result.steps)
        else:
            update = replace(update, payload=own)
    assert update is not None, "an update is in the row or in the message"
    return Cycle(*result[:5], update, *result[8:11], result.intake)


def fills_row(result: Result, row: Vector) -> bool:
    """Return whether the update fills most of the row, so that it should stay there until due."""
    return 2 * (result.packed.first + result.packed.second) > row.nbytes


def _copy(payload: Payload) -> Payload:
    return payload.of([array.copy() for array in payload.arrays])


def _pack(payload: Payload, row: Vector) -> Packed | None:
    """Store a payload's arrays in a row; return None if they do not fit."""
    arrays = [
        np.ascontiguousarray(array, type_)
        for array, type_ in zip(payload.arrays, payload.TYPES, strict=True)
    ]
    sizes = [array.nbytes for array in arrays]
    if len(arrays) > MAX_ARRAYS:
        arrays.insert(0, np.array(sizes, SIZE))
        sizes.insert(0, arrays[0].nbytes)
    if sum(map(_aligned, sizes[:-1])) + sizes[-1] > row.nbytes:
        return None
    room, start = row.view(np.uint8), 0
    for array, size in zip(arrays, sizes, strict=True):
        room[start : start + size] = array.view(np.uint8)
        start += _aligned(size)
    return Packed(payload.NUMBER, sizes[0], sum(sizes[1:]))


def _unpack(packed: Packed, row: Vector) -> Payload:
    """Return the payload in a row; its arrays are views into the row."""
    kind, room, start = _KINDS[packed.kind], row.view(np.uint8), 0
    sizes: Sequence[int] = packed[1:]
    if len(kind.TYPES) > MAX_ARRAYS:
        sizes, start = room[: packed.first].view(SIZE).tolist(), _aligned(packed.first)
    arrays = []
    for type_, size in zip(kind.TYPES, sizes, strict=False):
        arrays.append(room[start : start + size].view(type_))
        start += _aligned(size)
    return kind.of(arrays)


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT
