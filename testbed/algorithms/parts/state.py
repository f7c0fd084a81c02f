"""A half's state other than its model: how a checkpoint saves it, and how a new half restores it.

A half is restored into a new half of the same scenario, initialised by ``__post_init__``. An array
that exists there with the same shape is filled in place, so that views of it stay views. Functions
are not state: they stay as ``__post_init__`` made them.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

import numpy as np

from testbed.errors import AlgorithmError, DataError
from testbed.values.state import PlainState, fitting, hides_code, pack, unpack

_TO_HALF = ("config", "layout", "workers", "rng", "index", "shared_seed")
GIVEN = frozenset((*_TO_HALF, "parameters", "version", "orders", "loss"))
"""Attributes that the frame gives a half, or saves itself."""

CODE = (FunctionType, BuiltinFunctionType, MethodType, partial, type)


def own_state(half: object) -> dict[str, Any]:
    """Return the attributes that a half created itself, without functions."""
    return {
        name: value
        for name, value in vars(half).items()
        if name not in GIVEN and not isinstance(value, CODE)
    }


def set_own_state(half: object, state: Mapping[str, Any]) -> None:
    """Set the saved attributes of a half on a new half.

    Raises:
        DataError: an attribute may not be part of a state.
    """
    for name, value in state.items():
        if name in GIVEN or hides_code(type(half), name):
            raise DataError(f"not the state of a half: it has {name!r}.")
        there: Any = getattr(half, name, None)
        both = isinstance(there, np.ndarray) and isinstance(value, np.ndarray)
        if both and (there.shape, there.dtype) == (value.shape, value.dtype):
            there[...] = value
        else:
            setattr(half, name, value)


def pack_half(half: Any) -> PlainState:
    """Pack a half's whole state: its model, its random generator and its own state.

    Raises:
        AlgorithmError: the half holds an object that a checkpoint cannot hold; the error names it.
    """
    whole = {
        "parameters": half.parameters[:],  # a view: the array itself is stored as a reference
        "rng": half.rng.bit_generator.state,
        "version": half.version,
        "orders": getattr(half, "orders", None),
        "own": dict(half.state()),
    }
    try:
        return pack(whole, _given(half))
    except AlgorithmError as error:
        where = error.message.replace("state['own']", type(half).__name__, 1)
        raise AlgorithmError(where, hint=error.hint) from None


def restore_half(half: Any, packed: PlainState) -> None:
    """Restore a packed state into a new half.

    Raises:
        DataError: the state is that of a half of another scenario or class.
    """
    whole = unpack(packed, _given(half))
    with fitting():
        if whole["parameters"].shape != half.parameters.shape:
            found = f"a model of {whole['parameters'].size} parameters"
            raise DataError(f"{found}, expected {half.parameters.size}.")
        half.parameters[:] = whole["parameters"]
        half.rng.bit_generator.state = whole["rng"]
        half.version = int(whole["version"])
        if whole["orders"] is not None:
            half.orders = whole["orders"]  # a worker's
        own = whole["own"]
    half.restore(own)


def _given(half: Any) -> dict[str, object]:
    """Return the objects that a half's state may refer to: every half of the scenario has them."""
    names = ("config", "layout", "rng", "parameters")
    return {name: getattr(half, name) for name in names} | {"half": half}
