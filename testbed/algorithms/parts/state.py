"""What a half keeps beside its model: how a checkpoint takes it, and how another half goes on.

A half is restored into a new one of the same scenario, which ``__post_init__`` has made ready. An
array that has its shape there already is filled in place, so that views of it stay views. Functions
are no state: they stay as ``__post_init__`` made them.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from testbed.errors import AlgorithmError, DataError
from testbed.values.state import PlainState, fitting, hides_code, pack, unpack

if TYPE_CHECKING:
    from testbed.algorithms.base import ServerHalf, WorkerHalf

GIVEN = frozenset(("config", "layout", "workers", "rng", "parameters", "version", "orders"))
"""What the frame gives a half, or saves itself."""

CODE = (FunctionType, BuiltinFunctionType, MethodType, partial, type)


def own_state(half: object) -> dict[str, Any]:
    """The attributes that a half has made itself, without functions."""
    return {
        name: value
        for name, value in vars(half).items()
        if name not in GIVEN and not isinstance(value, CODE)
    }


def set_own_state(half: object, state: Mapping[str, Any]) -> None:
    """Give a new half the attributes of another.

    Raises:
        DataError: one of them is none that a state holds.
    """
    for name, value in state.items():
        if name in GIVEN or hides_code(type(half), name):
            raise DataError(f"not the state of a half: it has {name!r}.")
        there = getattr(half, name, None)
        if isinstance(there, np.ndarray) and _fits(there, value):
            there[...] = value
        else:
            setattr(half, name, value)


def pack_half(half: WorkerHalf[Any] | ServerHalf[Any]) -> PlainState:
    """A half's whole state: its model and random stream, and what it keeps beside them.

    Raises:
        AlgorithmError: it holds something that no checkpoint can hold; names it.
    """
    whole = {
        "parameters": half.parameters[:],  # a view: the array itself is only referred to
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


def restore_half(half: WorkerHalf[Any] | ServerHalf[Any], packed: PlainState) -> None:
    """Let a new half go on where another one was.

    Raises:
        DataError: this is the state of a half of another scenario, or of another class.
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
            half.orders = whole["orders"]  # type: ignore[union-attr]  # a worker's
        own = whole["own"]
    half.restore(own)


def _given(half: WorkerHalf[Any] | ServerHalf[Any]) -> dict[str, object]:
    """What a half's state may refer to, as every half of the scenario has it."""
    names = ("config", "layout", "rng", "parameters")
    return {name: getattr(half, name) for name in names} | {"half": half}


def _fits(there: NDArray[Any], value: object) -> bool:
    if not isinstance(value, np.ndarray):
        return False
    return (there.shape, there.dtype) == (value.shape, value.dtype)
