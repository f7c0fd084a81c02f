"""What comes of a call to the server, for its driver to carry out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from testbed.algorithms.base import NO_ORDERS, Applied, Orders, Reply


@dataclass(frozen=True)
class StandingOrders:
    """The orders in force for one worker; of two, the ones with the larger number count."""

    number: int = 0
    orders: Orders = NO_ORDERS


NO_STANDING = StandingOrders()


@dataclass(frozen=True)
class Release:
    """A reply that may go out now; None tells the worker that training has ended."""

    worker: int
    reply: Reply | None
    standing: StandingOrders = NO_STANDING


@dataclass(frozen=True)
class Effects:
    """What came of a call.

    Attributes:
        accepted: whether a push was taken: it came for the first time, and before the end.
        crashed: whether it was its worker's last.
        lost: how many of its worker's pushes, with this one, the model has not, as the server that
            took them, or the model that this one builds on, has died.
        applied: the updates that are in the model because of it.
        removed: workers that have left, as nothing was heard of them for too long.
        orders: what must reach workers at once.
        measure: whether the loss of the model as it is now is wanted.
    """

    accepted: bool = False
    crashed: bool = False
    lost: int = 0
    applied: Sequence[Applied] = ()
    releases: Sequence[Release] = ()
    removed: Sequence[int] = ()
    orders: Mapping[int, StandingOrders] = field(default_factory=dict)
    measure: bool = False
