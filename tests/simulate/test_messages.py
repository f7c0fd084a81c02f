"""Updates on their way between the processes of a simulation."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from testbed.algorithms.base import Orders, Update
from testbed.compress.payload import Dense, Payload, Sparse
from testbed.models import Evaluation
from testbed.simulate.device import Cycle
from testbed.simulate.messages import (
    Examine,
    Loan,
    Order,
    Result,
    orders_bytes,
    orders_of,
    pack,
    results_bytes,
    results_of,
    unpack,
)

N = 8


def sparse(*indices: int) -> Sparse:
    values = np.array([float("nan") if index == 3 else -index for index in indices], np.float32)
    return Sparse(np.array(indices, np.int32), values)


@pytest.mark.parametrize(
    ("payload", "apart"),
    [
        (Dense(np.arange(N, dtype=np.float32)), False),
        (sparse(), False),
        (sparse(0, 2, 3, 7), False),  # fills the row
        (sparse(0, 2, 3, 5, 7), True),
    ],
)
def test_an_update_comes_out_of_the_row_as_it_went_in(payload: Payload, apart: bool) -> None:
    row = np.full(N, 9, np.float32)
    cycle = Cycle(3, 17, Update(payload, 40, 10), 2.5, 0.01, 1.25)
    result = pack(cycle, row)
    assert (result.payload is not None) == apart
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


@pytest.mark.parametrize(
    "order",
    [
        Order(7, 1.25, 0.1, Loan(3, 40, Orders(), None)),
        Order(7, 1.25, 0.0, Loan(3, 40, Orders(local_steps=3), None)),
        Order(0, float("inf"), 1e-300, Loan(0, 2**62, Orders(batch_size=1), None)),
    ],
)
def test_an_order_comes_out_of_its_bytes_as_it_went_in(order: Order) -> None:
    assert orders_of(orders_bytes([order, order])) == [order, order]


def test_a_part_of_a_model_travels_with_its_order() -> None:
    given = [Order(7, 1.25, 0.1, Loan(3, 40, Orders(), sparse(0, 5)))]
    orders = orders_of(orders_bytes(given))
    assert not isinstance(orders, Examine)
    (out,) = orders
    part = out.loan.part
    assert isinstance(part, Sparse)
    np.testing.assert_array_equal(part.indices, [0, 5])
    np.testing.assert_array_equal(part.values, np.array([0, -5], np.float32))


@pytest.mark.parametrize("images", [None, np.array([0, 3, 9])])
def test_what_is_to_be_evaluated_travels_too(images: NDArray[np.int64] | None) -> None:
    out = orders_of(orders_bytes(Examine(images)))
    assert isinstance(out, Examine)
    np.testing.assert_array_equal(out.images, images)


@pytest.mark.parametrize(
    "result",
    [
        Result(3, 17, 2.5, 0.01, 1.25, 40, 10, None, None),
        Result(3, 17, 2.5, 0.01, 1.25, 40, 10, 0, None),
        Result(3, 17, 2.5, 0.01, 1.25, 40, 10, 4, None),
    ],
)
def test_a_result_comes_out_of_its_bytes_as_it_went_in(result: Result) -> None:
    assert results_of(results_bytes([result, result])) == [result, result]


def test_an_evaluation_comes_out_of_its_bytes_as_it_went_in() -> None:
    evaluation = Evaluation(float("inf"), 0.25, 0.5, 360)
    assert results_of(results_bytes(evaluation)) == evaluation


def test_an_update_apart_travels_with_its_result() -> None:
    packed = Result(3, 17, 2.5, 0.01, 1.25, 40, 10, None, sparse(0, 2, 7))
    results = results_of(results_bytes([packed]))
    assert not isinstance(results, Evaluation)
    (out,) = results
    assert out[:8] == packed[:8]
    assert isinstance(out.payload, Sparse)
    np.testing.assert_array_equal(out.payload.indices, [0, 2, 7])
