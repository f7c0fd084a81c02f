"""Updates on their way between the processes of a simulation."""

from __future__ import annotations

import numpy as np
import pytest

from testbed.algorithms.base import Update
from testbed.compress.payload import Dense, Payload, Sparse
from testbed.simulate.device import Cycle
from testbed.simulate.messages import pack, unpack

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
