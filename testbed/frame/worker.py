"""The worker's loop: pull, train, think, push, around an algorithm's worker half.

It is a generator. It yields what is to be done next and is sent the outcome, so that a role can do
it over gRPC in real seconds and a simulation on a virtual clock in modelled ones:

    yields                      is sent
    Pull()                      Arrived(now, reply)
    Step(samples)               Computed(now, gradient)
    Think(seconds)              Passed(now)
    Push(sequence, update)      Arrived(now, reply)

A reply of None ends the loop. Any other outcome than the action's own is the driver's mistake.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from testbed.algorithms.base import Orders, Reply, Update, WorkerHalf
from testbed.compress.payload import Vector

Samples = NDArray[np.int64]


@dataclass(frozen=True)
class Pull:
    """Fetch the model without pushing."""


@dataclass(frozen=True, eq=False)
class Step:
    """Compute the gradient of the mean loss at the worker half's parameters.

    Attributes:
        samples: indices into the training set, shape (batch_size,).
    """

    samples: Samples


@dataclass(frozen=True)
class Think:
    """Let emulated seconds pass between computing and pushing (AdaComp's added waiting time)."""

    seconds: float


@dataclass(frozen=True, eq=False)
class Push:
    """Send an update and wait for the reply.

    Attributes:
        sequence: 1 for the first push; a repeat of the same push keeps its number.
        update: what to send.
    """

    sequence: int
    update: Update


Action = Pull | Step | Think | Push


@dataclass(frozen=True, eq=False)
class Arrived:
    """A reply came, at emulated time ``now``; None means that training has ended."""

    now: float
    reply: Reply | None


@dataclass(frozen=True, eq=False)
class Computed:
    """A gradient, float32 (N,), lent until the next Step, at emulated time ``now``."""

    now: float
    gradient: Vector


@dataclass(frozen=True)
class Passed:
    """The time asked for has passed; it is ``now``."""

    now: float


Outcome = Arrived | Computed | Passed
Loop = Generator[Action, Outcome, None]

_Own = TypeVar("_Own", Arrived, Computed, Passed)


@dataclass
class Worker:
    """One worker.

    Attributes:
        half: the algorithm's worker half.
        shard: indices of the training samples it owns; at least one.
        batch_size: samples of a mini-batch, unless orders say otherwise.
        think: draws the emulated seconds between computing and pushing.
        rng: shuffles the shard, anew for every local epoch.
        orders: the orders in force; a driver that receives orders between replies sets it.
    """

    half: WorkerHalf
    shard: Samples
    batch_size: int
    think: Callable[[], float]
    rng: np.random.Generator
    orders: Orders = field(default_factory=Orders)

    def __post_init__(self) -> None:
        if len(self.shard) == 0:
            raise ValueError("the shard is empty, expected at least one training sample")

    def loop(self) -> Loop:
        """The life of a worker; see the module's table for what it yields and is sent."""
        sequence = 0
        batches = self._batches()
        arrived = yield from _ask(Pull(), Arrived)
        while (reply := arrived.reply) is not None:
            self.half.receive(reply, arrived.now)
            self.orders = reply.orders
            del reply, arrived  # or the gradient would need its memory beside theirs
            update = None
            while update is None:
                samples = next(batches)
                computed = yield from _ask(Step(samples), Computed)
                update = self.half.step(computed.gradient, len(samples), computed.now)
            seconds = self.think()
            if seconds > 0:
                yield from _ask(Think(seconds), Passed)
            sequence += 1
            arrived = yield from _ask(Push(sequence, update), Arrived)

    def _batches(self) -> Iterator[Samples]:
        """Mini-batches, without replacement within a local epoch.

        What is left of an epoch and is shorter than a batch begins the first batch of the next.
        """
        order = self.rng.permutation(self.shard)
        while True:
            size = self.orders.batch_size or self.batch_size
            while len(order) < size:
                order = np.concatenate([order, self.rng.permutation(self.shard)])
            yield order[:size]
            order = order[size:]


def _ask(action: Action, outcome: type[_Own]) -> Generator[Action, Outcome, _Own]:
    """Yield an action, and return the outcome that belongs to it."""
    sent = yield action
    if not isinstance(sent, outcome):
        raise TypeError(
            f"{type(action).__name__} was sent {type(sent).__name__}, expected {outcome.__name__}"
        )
    return sent
