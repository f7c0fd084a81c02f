"""What the clock's process and those that compute gradients tell each other, kept small.

Arrays travel beside the messages, in a row of the shared memory. What is said for every update goes
as a few numbers in fixed places, all else as a pickle behind another first byte.
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
from testbed.errors import TestbedError
from testbed.frame.effects import NO_STANDING, StandingOrders
from testbed.frame.record import Intake
from testbed.models import Evaluation
from testbed.payloads import KINDS, Payload, Sparse, Vector
from testbed.simulation.worker import Coming, Cycle, Paused
from testbed.values.state import PlainState

PICKLED = b"\xff"
SIZE = "<i8"
ALIGNMENT = 8
"""Bytes; each array in a row begins with a multiple."""

MOST_ARRAYS = 2
"""Before those of a payload with more, their sizes stand in the row."""

_TASK = struct.Struct("<xqddqqqqq")
_RESULT = struct.Struct("<xqqdddqqqqqdqqq")
_KINDS = {kind.NUMBER: kind for kind in KINDS}


class Packed(NamedTuple):
    """A payload in a row: its kind's number, and how many bytes its one or two arrays take.

    Of more arrays than that, the first is that of their sizes, and the second stands for them all.
    """

    kind: int
    first: int
    second: int


class Loan(NamedTuple):
    """A reply that was handed to a worker, with a row that is the worker's until its result is out.

    A reply that is not all in the row goes ``apart``, but for its payload if that fits.
    """

    row: int
    version: int
    packed: Packed
    apart: Reply | None = None
    standing: StandingOrders = NO_STANDING


class Begin(NamedTuple):
    """Go on with a worker from a reply that has arrived.

    Attributes:
        think: the next draw of the think law.
        horizon: how far it may be computed.
        coming: orders between replies, and when they reach the worker.
        slow: how many times as long a step takes that begins from now on.
    """

    worker: int
    now: float
    think: float
    loan: Loan
    horizon: float = inf
    coming: tuple[Coming, ...] = ()
    slow: float = 1.0


class Resume(NamedTuple):
    """Go on with a worker that may have come to its horizon, in the row that it was lent."""

    worker: int
    row: int
    horizon: float
    coming: tuple[Coming, ...]
    slow: float = 1.0


class Restart(NamedTuple):
    """A worker's process has ended: begin from the beginning."""

    worker: int


class Examine(NamedTuple):
    """Evaluate the model in the process's last row, on these test images (all if None)."""

    images: NDArray[np.int64] | None


class Save(NamedTuple):
    """Say where all workers of the process are."""


class Restore(NamedTuple):
    """Put workers where others of their numbers were."""

    workers: Mapping[int, PlainState]


class Saved(NamedTuple):
    """Where the workers of one process are; of those that were restored, none."""

    workers: Mapping[int, PlainState]


class Unmoved(NamedTuple):
    """A worker that was to resume, and was not paused; or that begins from the beginning."""

    worker: int


class Result(NamedTuple):
    """A cycle, with its update's payload in the row if it fits.

    An update that is not all in the row goes ``apart``, but for its payload if that fits.
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
    apart: Update | None = None
    intake: Intake | None = None


Task = Begin | Resume | Restart
Special = Examine | Save | Restore
"""Goes by itself, and so does its answer."""

Answer = Result | Paused | Unmoved
NOT_PACKED = Packed(0, 0, 0)
IN_ROW = Sparse.nothing()
"""In the place of a payload that is in the row."""


def tasks_bytes(tasks: Sequence[Task] | Special) -> bytes:
    """Tasks as they go through the pipe."""
    if isinstance(tasks, Special) or not all(_is_plain(task) for task in tasks):
        return PICKLED + pickle.dumps(tasks)
    begins = [one for one in tasks if isinstance(one, Begin)]
    return b"".join([_TASK.pack(*one[:3], *one.loan[:2], *one.loan.packed) for one in begins])


def tasks_of(data: bytes) -> Sequence[Task] | Special:
    """What ``tasks_bytes`` made bytes of."""
    if data[:1] == PICKLED:
        tasks: Sequence[Task] | Special = pickle.loads(data[1:])
        return tasks
    return [
        Begin(worker, now, think, Loan(row, version, Packed(*packed)))
        for worker, now, think, row, version, *packed in _TASK.iter_unpack(data)
    ]


def answers_bytes(answers: Sequence[Answer] | Evaluation | Saved | TestbedError) -> bytes:
    """Answers as they go through the pipe, or the error that there is instead."""
    if isinstance(answers, Evaluation | Saved | TestbedError) or not all(
        isinstance(one, Result) and one.apart is None and one.intake is None for one in answers
    ):
        return PICKLED + pickle.dumps(answers)
    return b"".join(
        [_RESULT.pack(*one[:11], *one.packed) for one in answers if isinstance(one, Result)]
    )


def answers_of(data: bytes) -> Sequence[Answer] | Evaluation | Saved:
    """What ``answers_bytes`` made bytes of.

    Raises:
        TestbedError: the one that was sent.
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
    if isinstance(task, Resume | Restart) or task.coming or (task.horizon, task.slow) != (inf, 1.0):
        return False
    return task.loan.apart is None and task.loan.standing is NO_STANDING


def lend(reply: Reply, row: Vector, number: int, standing: StandingOrders) -> Loan:
    """The reply as it goes to a worker; its payload goes through row ``number``, or is copied."""
    packed, apart = _pack(reply.model, row), None
    if packed is None:
        apart = replace(reply, model=_copy(reply.model))
    elif reply.note or reply.shared is not None:
        apart = replace(reply, model=IN_ROW)
    return Loan(number, reply.version, packed or NOT_PACKED, apart, standing)


def borrowed(loan: Loan, row: Vector) -> Reply:
    """The reply that was lent; its arrays are the row's."""
    if loan.apart is None:
        return Reply(_unpack(loan.packed, row), loan.version)
    if loan.packed == NOT_PACKED:
        return loan.apart
    return replace(loan.apart, model=_unpack(loan.packed, row))


def pack(cycle: Cycle, row: Vector) -> Result:
    """The cycle as it goes through the pipe; its payload goes through the row."""
    update, apart = cycle.update, None
    packed = _pack(update.payload, row)
    if packed is None:
        apart = update
    elif update.note or update.shared is not None:
        apart = replace(update, payload=IN_ROW)
    return Result(
        *cycle[:5],
        *(update.version, update.samples, update.steps),
        *(cycle.payload_bytes, cycle.saturated),
        next_step=cycle.next_step,
        packed=packed or NOT_PACKED,
        apart=apart,
        intake=cycle.intake,
    )


def unpack(result: Result, row: Vector) -> Cycle:
    """The cycle that was packed; the row may then be used again."""
    update = result.apart
    if result.packed != NOT_PACKED:
        own = _copy(_unpack(result.packed, row))
        if update is None:
            update = Update(own, result.version, samples=result.samples, steps=result.steps)
        else:
            update = replace(update, payload=own)
    assert update is not None, "what is not in the row is apart"
    return Cycle(*result[:5], update, *result[8:11], result.intake)


def fills_row(result: Result, row: Vector) -> bool:
    """Whether the update takes most of the row, and is better left there until it is due."""
    return 2 * (result.packed.first + result.packed.second) > row.nbytes


def _copy(payload: Payload) -> Payload:
    return payload.of([array.copy() for array in payload.arrays])


def _pack(payload: Payload, row: Vector) -> Packed | None:
    """Put a payload's arrays into a row, or return None if they do not fit."""
    arrays = [
        np.ascontiguousarray(array, type_)
        for array, type_ in zip(payload.arrays, payload.TYPES, strict=True)
    ]
    sizes = [array.nbytes for array in arrays]
    if len(arrays) > MOST_ARRAYS:
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
    """The payload in a row; its arrays are the row's."""
    kind, room, start = _KINDS[packed.kind], row.view(np.uint8), 0
    sizes: Sequence[int] = packed[1:]
    if len(kind.TYPES) > MOST_ARRAYS:
        sizes, start = room[: packed.first].view(SIZE).tolist(), _aligned(packed.first)
    arrays = []
    for type_, size in zip(kind.TYPES, sizes, strict=False):
        arrays.append(room[start : start + size].view(type_))
        start += _aligned(size)
    return kind.of(arrays)


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT
