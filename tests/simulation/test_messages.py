"""Updates in transit between the processes of a simulation."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from testbed.algorithms.base import Reply, Update
from testbed.payloads import Dense, Payload, Sparse
from testbed.simulation.messages import Result, load, store
from testbed.simulation.worker import Cycle

N = 8


def sparse(*indices: int) -> Sparse:
    values = np.array([float("nan") if index == 3 else -index for index in indices], np.float32)
    return Sparse(np.array(indices, np.int32), values)


@pytest.mark.parametrize(
    ("payload", "fits"),
    [
        (Dense(np.arange(N, dtype=np.float32)), True),
        (sparse(), True),
        (sparse(0, 2, 3, 7), True),  # fills the row
        (sparse(0, 2, 3, 5, 7), False),
    ],
)
def test_an_update_comes_out_of_the_row_as_it_went_in(payload: Payload, fits: bool) -> None:
    row = np.full(N, 9, np.float32)
    cycle = Cycle(3, 17, 2.5, 0.01, 1.25, Update(payload, 40, 10), 123, 4, 0.25)
    result = pickle.loads(pickle.dumps(Result.of(cycle, row)))
    assert bool(result.stored.sizes) == fits
    out = result.cycle(row)
    row[:] = 0  # the next model
    assert type(out.update.payload) is type(payload)
    for array, before in zip(out.update.payload.arrays, payload.arrays, strict=True):
        np.testing.assert_array_equal(array, before)
        assert array.dtype == before.dtype
    assert out[:5] == cycle[:5]
    assert (out.update.version, out.update.samples) == (40, 10)
    assert out[6:] == cycle[6:]


@pytest.mark.parametrize("note", [{}, {"least": 3.0}])
@pytest.mark.parametrize("payload", [Dense(np.arange(N, dtype=np.float32)), sparse(0, 5)])
def test_a_reply_is_lent_through_a_row(payload: Payload, note: dict[str, float]) -> None:
    row = np.full(N, 9, np.float32)
    out = load(Reply, store(Reply(payload, 40, note=note), row), row)
    assert (out.version, out.note, type(out.model)) == (40, note, type(payload))
    for there, here in zip(out.model.arrays, payload.arrays, strict=True):
        np.testing.assert_array_equal(there, here)
        assert np.shares_memory(there, row)


def test_a_payload_has_the_types_of_a_link() -> None:
    row, model = np.zeros(N, np.float32), np.arange(2 * N)[::2]
    out = load(Reply, store(Reply(Dense(model), 0), row), row)  # type: ignore[arg-type]
    np.testing.assert_array_equal(out.model.arrays[0], np.arange(0.0, 2 * N, 2))
