"""Checks of a server half's return values before they are used; each raises AlgorithmError."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from testbed.algorithms.base import Applied, Orders, Reply, ServerHalf
from testbed.algorithms.frame.breach import breach
from testbed.payloads import Payload


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
