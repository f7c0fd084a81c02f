"""The effects of a call to the server, for its driver to apply."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from testbed.algorithms.base import NO_ORDERS, Applied, Orders, Reply


@dataclass(frozen=True)
class StandingOrders:
    """The current orders of one worker; the larger number is the newer.

    Attributes:
        time: when the server gave the last of them, in emulated time.
    """

    number: int = 0
    orders: Orders = NO_ORDERS
    time: float = 0.0


NO_STANDING = StandingOrders()


@dataclass(frozen=True)
class Release:
    """A reply to send now; None tells the worker that training has ended."""

    worker: int
    reply: Reply | None
    standing: StandingOrders = NO_STANDING


@dataclass(frozen=True)
class Effects:
    """The effects of a call.

    Attributes:
        accepted: whether the push was accepted: it was new, and training had not ended.
        crashed: whether its worker crashes with this push.
        lost: how many of its worker's pushes, including this one, are missing from the model, since
            the server that accepted them, or the model that this one builds on, was lost.
        applied: the updates that this call applied to the model.
        removed: workers removed because nothing was received from them for too long.
        orders: orders to send to workers immediately.
        measure: whether to measure the loss of the current model.
    """

    accepted: bool = False
    crashed: bool = False
    lost: int = 0
    applied: Sequence[Applied] = ()
    releases: Sequence[Release] = ()
    removed: Sequence[int] = ()
    orders: Mapping[int, StandingOrders] = field(default_factory=dict)
    measure: bool = False


NOTHING = Effects()
