"""What halves return is checked before it is used, and sent in the types of its kind."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from testbed.algorithms import Bsp
from testbed.algorithms.base import Reply, Update
from testbed.algorithms.frame.breach import checked_reply, checked_update
from testbed.errors import AlgorithmError
from testbed.payloads import Dense, Payload, Sparse
from testbed.payloads.layout import Layout

GRADIENT = np.ones(2, np.float32)
LAYOUT = Layout(("weight",), ((2,),))


class Unlisted(Dense):
    """A kind of payload that the config's PAYLOADS lacks."""

    NUMBER = 64


def checked(payload: Any, samples: Any = 2) -> Update:
    half = Bsp(name="bsp").worker(LAYOUT, 1, rng=np.random.default_rng(0))
    return checked_update(half, "step", Update(payload, 0, samples))


def test_arrays_are_sent_in_the_types_of_their_kind() -> None:
    """Two values of float64 are 16 bytes, sent as 8; int64 is what NumPy makes of indices."""
    values = np.array([[1.5, -2.0]])
    for payload, size in ((Dense(values), 8), (Sparse(np.array([0, 1]), values), 16)):
        sent = checked(payload).payload
        assert (sent.size, sent.arrays[-1].tolist()) == (size, [1.5, -2.0])
        assert tuple(array.dtype.str for array in sent.arrays) == payload.TYPES
    same = Dense(GRADIENT)
    assert checked(same).payload is same


def test_a_reply_is_sent_in_the_types_of_its_kind() -> None:
    """A server half whose arithmetic has made float64 of its model: 8 bytes of 16 are sent."""

    def reply(model: Payload) -> Reply:
        half = Bsp(name="bsp").server(LAYOUT, 1, parameters=GRADIENT, rng=np.random.default_rng(0))
        return checked_reply(half, Reply(model, 0))

    assert reply(Dense(np.array([1.0, 3.0]))).model.size == 8
    same = Dense(GRADIENT)
    assert reply(same).model is same


@pytest.mark.parametrize(
    ("payload", "samples", "found"),
    [
        (GRADIENT, 2, "payload is of type ndarray, expected one of Dense, Sparse"),
        (None, 2, "payload is of type NoneType, expected one of Dense"),
        (Unlisted(GRADIENT), 2, "a Unlisted, which its config's PAYLOADS lacks"),
        (Dense(np.ones(2) * 1j), 2, "a Dense with an array of complex128, expected float32"),
        (Sparse(np.ones(2), np.ones(2)), 2, "a Sparse with an array of float64, expected int32"),
        (Dense(torch.ones(2, requires_grad=True)), 2, "a Dense with Can't call numpy"),
        (Dense(GRADIENT), 2.0, "whose samples is 2.0, expected a whole number"),
    ],
)
def test_a_push_that_cannot_be_sent_breaks_the_contract(
    payload: Any, samples: Any, found: str
) -> None:
    with pytest.raises(AlgorithmError, match=f"the worker side of Bsp .*{found}"):
        checked(payload, samples)
