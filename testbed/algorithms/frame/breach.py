"""Errors for an algorithm that violates its contract, with class and, if known, file and line.

Also the checks of a server half's return values before they are used.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from testbed.algorithms.base import Applied, Orders, Reply, ServerHalf, WorkerHalf
from testbed.errors import AlgorithmError
from testbed.payloads import Payload
from testbed.payloads.notes import note_flaw
from testbed.values.user_code import MODULE


def breach(half: WorkerHalf[Any] | ServerHalf[Any], method: str, what: str) -> AlgorithmError:
    """Return the error for a violation of the contract.

    Args:
        half: the worker or server side of the algorithm.
        method: its method at fault, whose line is reported.
        what: what is wrong, as a clause.
    """
    side = "worker" if isinstance(half, WorkerHalf) else "server"
    return AlgorithmError(
        f"{location(half, method)}: the {side} side of {type(half.config).__name__} violated "
        f"the contract: {what}.",
        hint="See the contract in testbed/algorithms/base.py.",
    )


def location(half: object, method: str) -> str:
    """Return a method's location: ``mine.py:33``, or the module for algorithms of this package.

    The line is left out for an inherited method, as it is defined in another file.
    """
    module = type(half).__module__
    if not module.startswith(MODULE):
        return module
    file = str(sys.modules[module].__file__)
    code = getattr(getattr(type(half), method, None), "__code__", None)
    line = f":{code.co_firstlineno}" if code is not None and code.co_filename == file else ""
    return f"{Path(file).name}{line}"


def checked_applied(half: ServerHalf[Any], applied: Any) -> Sequence[Applied]:
    """Return the result of ``push`` if it is a sequence."""
    if not isinstance(applied, Sequence):
        raise breach(half, "push", f"push returned {applied!r}, expected a sequence of Applied")
    return applied


def checked_reply(half: ServerHalf[Any], reply: Any) -> Reply:
    """Return the result of ``pull`` if it fits the model, as a push must."""
    if not isinstance(reply, Reply):
        raise breach(half, "pull", f"pull returned {reply!r}, expected a Reply")
    if not isinstance(reply.model, Payload):
        raise breach(half, "pull", f"pull returned a model {reply.model!r}, expected a payload")
    if flaw := reply.model.flaw(half.parameters.size):
        raise breach(half, "pull", f"pull returned a reply with {flaw}")
    if flaw := note_flaw(reply.note, half.config.most_noted(half.parameters.size)):
        raise breach(half, "pull", f"pull returned a reply: {flaw}")
    if not 0 <= reply.version <= half.version:
        found = f"pull returned a reply at version {reply.version}, the model is at {half.version}"
        raise breach(half, "pull", found)
    return reply


def checked_orders(half: ServerHalf[Any], orders: Orders) -> Orders:
    """Return orders for a worker if its half obeys them."""
    if unknown := orders.given - half.config.OBEYS:
        names = ", ".join(sorted(unknown))
        raise breach(half, "tick", f"it orders {names}, which the config's OBEYS lacks")
    return orders
