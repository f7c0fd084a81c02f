"""Errors for an algorithm that violates its contract, with class and, if known, file and line.

Also the checks of what halves return, before it is used.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from testbed.algorithms.base import Applied, Orders, Reply, ServerHalf, Update, WorkerHalf
from testbed.errors import AlgorithmError
from testbed.payloads import KINDS, Payload
from testbed.payloads.notes import note_flaw
from testbed.values.user_code import MODULE, method_location


def breach(half: WorkerHalf[Any] | ServerHalf[Any], method: str, what: str) -> AlgorithmError:
    """Return the error for a violation of the contract.

    Args:
        half: the worker or server side of the algorithm.
        method: its method at fault, whose line is reported.
        what: what is wrong, as a clause.
    """
    side = "worker" if isinstance(half, WorkerHalf) else "server"
    where, config = method_location(type(half), method), type(half.config).__name__
    return AlgorithmError(
        f"{where}: the {side} side of {config} violated the contract: {what}.",
        hint="See the contract in testbed/algorithms/base.py.",
    )


def is_own(half: WorkerHalf[Any] | ServerHalf[Any]) -> bool:
    """Whether a side of the algorithm is the user's own code."""
    return type(half).__module__.startswith(MODULE)


def checked_update(half: WorkerHalf[Any], method: str, update: Any) -> Update:
    """Return the update that ``method`` returned, with its payload as it is sent.

    The server refuses a payload that does not fit the model too, but can only name its worker: the
    size is checked here for the user's own code, whose line the error then has.
    """
    if not isinstance(update, Update):
        raise breach(half, method, f"{method} returned {update!r}, expected an Update")
    for name in ("version", "samples", "steps"):
        if not isinstance(number := getattr(update, name), int | np.integer):
            found = f"{method} returned an update whose {name} is {number!r}"
            raise breach(half, method, f"{found}, expected a whole number")
    payload = _checked_payload(half, method, update.payload)
    if is_own(half) and (flaw := payload.flaw(half.layout.size)):
        raise breach(half, method, f"{method} returned an update with {flaw}")
    return update if payload is update.payload else replace(update, payload=payload)


def _checked_payload(half: WorkerHalf[Any] | ServerHalf[Any], method: str, payload: Any) -> Payload:
    """Return the payload of a message with arrays of its kind's types."""
    own = half.config.PAYLOADS
    if not isinstance(payload, Payload):
        found = f"{method} returned a message whose payload is of type {type(payload).__name__}"
        kinds = ", ".join(kind.__name__ for kind in (*KINDS, *own))
        raise breach(half, method, f"{found}, expected one of {kinds}")
    name = type(payload).__name__
    if type(payload) not in (*KINDS, *own):
        raise breach(half, method, f"{method} returned a {name}, which its config's PAYLOADS lacks")
    try:
        return payload.as_declared()
    except (TypeError, ValueError, RuntimeError) as error:  # the latter of torch and NumPy
        raise breach(half, method, f"{method} returned a {name} with {error}") from error


def checked_applied(half: ServerHalf[Any], applied: Any) -> Sequence[Applied]:
    """Return the result of ``push`` if it is a sequence."""
    if not isinstance(applied, Sequence):
        raise breach(half, "push", f"push returned {applied!r}, expected a sequence of Applied")
    return applied


def checked_reply(half: ServerHalf[Any], reply: Any) -> Reply:
    """Return the result of ``pull`` if it fits the model, as a push must."""
    if not isinstance(reply, Reply):
        raise breach(half, "pull", f"pull returned {reply!r}, expected a Reply")
    model = _checked_payload(half, "pull", reply.model)
    if flaw := model.flaw(half.parameters.size):
        raise breach(half, "pull", f"pull returned a reply with {flaw}")
    if flaw := note_flaw(reply.note, half.config.most_noted(half.parameters.size)):
        raise breach(half, "pull", f"pull returned a reply: {flaw}")
    if not 0 <= reply.version <= half.version:
        found = f"pull returned a reply at version {reply.version}, the model is at {half.version}"
        raise breach(half, "pull", found)
    return reply if model is reply.model else replace(reply, model=model)


def checked_orders(half: ServerHalf[Any], orders: Orders) -> Orders:
    """Return orders for a worker if its half obeys them."""
    if unknown := orders.given - half.config.OBEYS:
        names = ", ".join(sorted(unknown))
        raise breach(half, "tick", f"it orders {names}, which the config's OBEYS lacks")
    return orders
