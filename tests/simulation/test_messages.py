"""Updates in transit between the processes of a simulation."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from testbed.algorithms.base import Orders, Reply, Update
from testbed.algorithms.frame.effects import NO_STANDING, StandingOrders
from testbed.models import Evaluation
from testbed.payloads import Dense, Payload, Sparse
from testbed.simulation.messages import (
    Answer,
    Begin,
    Evaluate,
    Loan,
    Packed,
    Result,
    Resume,
    Task,
    Unchanged,
    borrowed,
    decode_answers,
    decode_tasks,
    encode_answers,
    encode_tasks,
    lend,
    pack,
    unpack,
)
from testbed.simulation.worker import Cycle, Paused

N = 8


def sparse(*indices: int) -> Sparse:
    values = np.array([float("nan") if index == 3 else -index for index in indices], np.float32)
    return Sparse(np.array(indices, np.int32), values)


@pytest.mark.parametrize(
    ("payload", "separate"),
    [
        (Dense(np.arange(N, dtype=np.float32)), False),
        (sparse(), False),
        (sparse(0, 2, 3, 7), False),  # fills the row
        (sparse(0, 2, 3, 5, 7), True),
    ],
)
def test_an_update_survives_its_row(payload: Payload, separate: bool) -> None:
    row = np.full(N, 9, np.float32)
    cycle = Cycle(3, 17, 2.5, 0.01, 1.25, Update(payload, 40, 10), 123, 4, 0.25)
    result = pack(cycle, row)
    assert (result.separate is not None) == separate
    out = unpack(result, row)
    row[:] = 0  # the next model
    assert type(out.update.payload) is type(payload)
    np.testing.assert_array_equal(out.update.payload.values, payload.values)
    if isinstance(payload, Sparse):
        assert isinstance(out.update.payload, Sparse)
        np.testing.assert_array_equal(out.update.payload.indices, payload.indices)
        assert out.update.payload.indices.dtype == np.int32
    assert (out.worker, out.sequence, out.push_at) == (3, 17, 2.5)
    assert (out.compute_seconds, out.think_seconds) == (0.01, 1.25)
    assert (out.update.version, out.update.samples) == (40, 10)
    assert (out.payload_bytes, out.saturated, out.next_step) == (123, 4, 0.25)


def test_an_update_with_a_note_keeps_it() -> None:
    update = Update(sparse(1), 40, samples=0, steps=0, note={"vote": 1.0})
    row = np.zeros(N, np.float32)
    out = unpack(pack(Cycle(3, 17, 2.5, 0.0, 0.0, update, 0, 0, 0.25), row), row)
    assert (out.update.steps, out.update.note) == (0, {"vote": 1.0})


@pytest.mark.parametrize("note", [{}, {"least": 3.0}])
@pytest.mark.parametrize("payload", [Dense(np.arange(N, dtype=np.float32)), sparse(0, 5)])
def test_a_reply_is_lent_through_a_row(payload: Payload, note: dict[str, float]) -> None:
    row, standing = np.full(N, 9, np.float32), StandingOrders(3, Orders(batch_size=2))
    loan = lend(Reply(payload, 40, note=note), row, 7, standing)
    assert (loan.row, loan.standing) == (7, standing)
    out = borrowed(loan, row)
    assert (out.version, out.note, type(out.model)) == (40, note, type(payload))
    for there, here in zip(out.model.arrays, payload.arrays, strict=True):
        np.testing.assert_array_equal(there, here)


STANDING = StandingOrders(4, Orders(local_steps=3))


@pytest.mark.parametrize(
    "task",
    [
        Begin(7, 1.25, 0.1, Loan(3, 40, Packed(1, 32, 0))),
        Begin(7, 1.25, 0.1, Loan(3, 40, Packed(1, 32, 0), standing=STANDING)),
        Begin(7, 1.25, 0.1, Loan(3, 40, Packed(1, 32, 0)), horizon=2.5),
        Begin(7, 1.25, 0.1, Loan(3, 40, Packed(1, 32, 0)), orders=((2.0, STANDING),)),
        Begin(0, float("inf"), 1e-300, Loan(0, 2**62, Packed(2, 8, 8))),
        Resume(7, 3, 4.5, ((2.0, STANDING),)),
    ],
)
def test_a_task_survives_encoding(task: Task) -> None:
    out = decode_tasks(encode_tasks([task, task]))
    assert out == [task, task]
    assert not isinstance(out, Evaluate)
    assert [type(one) for one in out] == [type(task)] * 2


@pytest.mark.parametrize("images", [None, np.array([0, 3, 9])])
def test_evaluation_requests_are_encoded(images: NDArray[np.int64] | None) -> None:
    out = decode_tasks(encode_tasks(Evaluate(images)))
    assert isinstance(out, Evaluate)
    np.testing.assert_array_equal(out.images, images)


@pytest.mark.parametrize(
    "answer",
    [
        Result(3, 17, 2.5, 0.01, 1.25, 40, 10, 1, 123, 4, 0.25, Packed(1, 32, 0)),
        Result(3, 17, 2.5, 0.01, 1.25, 40, 0, 0, 0, 0, 0.25, Packed(2, 0, 0)),
        Paused(3, 2.5),
        Unchanged(3),
    ],
)
def test_an_answer_survives_encoding(answer: Answer) -> None:
    out = decode_answers(encode_answers([answer, answer]))
    assert out == [answer, answer]
    assert not isinstance(out, Evaluation)
    assert [type(one) for one in out] == [type(answer)] * 2


def test_an_evaluation_survives_encoding() -> None:
    evaluation = Evaluation(float("inf"), 0.25, 0.5, 360)
    assert decode_answers(encode_answers(evaluation)) == evaluation


def test_a_separate_update_is_sent_with_its_result() -> None:
    update = Update(sparse(0, 2, 7), 40, samples=10)
    packed = Result(3, 17, 2.5, 0.01, 1.25, 40, 10, 1, 24, 0, 0.25, Packed(0, 0, 0), update)
    answers = decode_answers(encode_answers([packed]))
    assert not isinstance(answers, Evaluation)
    (out,) = answers
    assert isinstance(out, Result)
    assert out[:12] == packed[:12]
    assert out.separate is not None
    assert isinstance(out.separate.payload, Sparse)
    np.testing.assert_array_equal(out.separate.payload.indices, [0, 2, 7])


def test_empty_orders_stay_the_same_object() -> None:
    """Their identity distinguishes plain tasks from others."""
    out = decode_tasks(encode_tasks([Begin(7, 1.25, 0.1, Loan(3, 40, Packed(1, 32, 0)))]))
    assert not isinstance(out, Evaluate)
    assert isinstance(out[0], Begin)
    assert out[0].loan.standing is NO_STANDING
