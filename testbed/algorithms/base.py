"""The contract between an algorithm and the frame that runs it, live or simulated.

An algorithm is one file: a config (what stands in the scenario), a worker half and a server half.
It is pure. Time (``now``, emulated seconds since the training began) and randomness are arguments,
nothing blocks or counts bytes, nothing knows whether it runs in containers or in a simulation.

    worker half                                server half
      obey(orders, now)             <──────      tick(now) -> Ticked(applied, orders by worker)
      receive(reply, now)           <──────      pull(worker, now) -> Reply
      demand(stream, now) -> count
      taken(samples, now)           ──────>      push(worker, update, now) -> Applied, ...
      wake(now), amid a step        ──────>      ready(worker): may this worker have its reply?
      step(gradient, samples, now)

What an asynchronous algorithm with one step a push does not need has a default here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields
from math import inf
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from testbed.algorithms.parts.state import own_state, set_own_state
from testbed.errors import RejectedError
from testbed.payloads import Dense, Payload, Vector, zeros
from testbed.payloads.layout import Layout
from testbed.values.fields import Part

C = TypeVar("C", bound="AlgorithmConfig")

Samples = NDArray[np.int64]
"""Training samples, by their index in the training set."""


@dataclass(frozen=True)
class Orders:
    """What the server asks of a worker. A field stays in force until another value replaces it.

    Attributes:
        local_steps: mini-batches between two pushes; None says nothing of them.
        commit_interval: emulated seconds between two pushes.
        batch_size: samples of a mini-batch.
    """

    local_steps: int | None = None
    commit_interval: float | None = None
    batch_size: int | None = None

    def replaced_by(self, newer: Orders) -> Orders:
        """These orders, with the fields that ``newer`` says something of replaced."""
        return Orders(**(vars(self) | {name: getattr(newer, name) for name in newer.given}))

    @property
    def given(self) -> frozenset[str]:
        """The fields that say something."""
        return frozenset(f.name for f in fields(self) if getattr(self, f.name) is not None)


NO_ORDERS = Orders()


@dataclass(frozen=True)
class Reply:
    """What a pull brings to a worker.

    Attributes:
        model: the whole model, a part of it, or an update of it: what the worker half expects.
        version: of the model that the worker's next update builds on.
        orders: what changes for the worker from now on.
        note: numbers that go with it, by name.
        shared: other workers' samples, which the worker's next step takes beside its own.
    """

    model: Payload
    version: int
    orders: Orders = NO_ORDERS
    note: Mapping[str, float] = field(default_factory=dict)
    shared: Samples | None = None


@dataclass(frozen=True)
class Update:
    """What a worker sends.

    Attributes:
        payload: the algorithm's choice of what to send.
        version: of the reply that the worker last received.
        samples: training samples that went into it.
        steps: training steps that went into it; 0 for a message that is no part of the model, such
            as a vote.
        note: numbers that go with it, by name.
        shared: samples that go with it, for other workers; whoever carries it adds their pixels.
    """

    payload: Payload
    version: int
    samples: int
    steps: int = 1
    note: Mapping[str, float] = field(default_factory=dict)
    shared: Samples | None = None


@dataclass(frozen=True)
class Applied:
    """An update that is in the model from now on: its worker's oldest that was not.

    Attributes:
        worker: whose.
        version: how many updates were in the model before it.
        staleness: how many of these the worker did not know, those that are applied together with
            it not counted.
        sigma_mean: mean over the sent entries of the staleness that divided the learning rate;
            0 for an update without entries.
        sigma_max: the largest of them.
        step_scale: mean over the sent entries of 1 / max(1, sigma); 1 for an empty update.
    """

    worker: int
    version: int
    staleness: int = 0
    sigma_mean: float = 0.0
    sigma_max: int = 0
    step_scale: float = 1.0


@dataclass(frozen=True)
class Ticked:
    """What a server half did of its own accord; orders reach workers at once, without a reply."""

    applied: Sequence[Applied] = ()
    orders: Mapping[int, Orders] = field(default_factory=dict)


@dataclass(frozen=True)
class Measured:
    """An evaluation of the model as it was at this emulated time, at this version."""

    time: float
    version: int
    loss: float


@dataclass(frozen=True)
class Stream:
    """Where a worker's samples come from.

    Attributes:
        own: how many training samples the worker has; None where it is not known.
        rate: samples a second that arrive, measured; None where they are all there.
        buffered: samples that wait to be taken; None likewise.
        least: how many samples a step needs, for the model cannot compute on fewer: 2 where it
            normalises by the batch. A step that asks for fewer gets as many.
    """

    batch_size: int
    own: int | None = None
    rate: float | None = None
    buffered: int | None = None
    least: int = 1


class Half:
    """What both halves have: a state that a checkpoint holds."""

    def state(self) -> Mapping[str, Any]:
        """What this half has made itself and changes: everything but functions, by default.

        Model, version, orders and random stream are saved beside it. It may hold numbers, text,
        arrays, containers, numpy's generators, and objects of classes in this half's file.
        """
        return own_state(self)

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from what ``state`` returned; this half is new, and of the same scenario."""
        set_own_state(self, state)


@dataclass(eq=False)
class WorkerHalf(Half, ABC, Generic[C]):
    """What one worker does with replies, samples and gradients.

    Attributes:
        workers: how many the scenario has.
        rng: where its draws come from.
        parameters: float32, shape (N,): the worker's model. The frame computes gradients at these
            values, in place; only the worker half writes to them.
        version: of the last reply.
        orders: those in force.
    """

    config: C
    layout: Layout
    workers: int
    rng: Generator
    version: int = field(default=0, init=False)
    orders: Orders = field(default=NO_ORDERS, init=False)

    def __post_init__(self) -> None:
        self.parameters: Vector = zeros(self.layout.size)

    def obey(self, orders: Orders, now: float) -> None:
        """From now on these orders are in force; they have come with a reply or between two."""
        self.orders = orders

    def receive(self, reply: Reply, now: float) -> Update | None:
        """Take a reply over into ``parameters``. The reply's arrays are only lent: copy them.

        Returns:
            An update to send at once, without a step, or None to go on.
        """
        self.parameters[:] = expect(Dense, reply.model).values
        self.version = reply.version
        return None

    def demand(self, stream: Stream, now: float) -> int:
        """How many samples the next step takes; at least 1."""
        return self.orders.batch_size or stream.batch_size

    def taken(self, samples: Samples, now: float) -> Update | None:
        """The samples are there, and nothing is computed yet.

        There are none if its stream has brought nothing for too long: then no step follows.

        Returns:
            An update to send before that, such as a vote, or None to go on.
        """
        return None

    @abstractmethod
    def step(self, gradient: Vector, samples: int, now: float) -> Update | None:
        """Use one gradient of the mean loss over ``samples`` samples.

        Returns:
            The update to push now, or a message that comes before it, such as a vote; None to go on
            training locally. ``gradient`` is only lent: what the update holds must not alias it.
        """

    def alarm(self) -> float:
        """When it is to be woken, if a step is being computed then; its config says ``WAKES``."""
        return inf

    def wake(self, now: float) -> Update | None:
        """The time that ``alarm`` named has come, amid a step whose gradient is still to come.

        Returns:
            An update to push at once, without that step, or None to go on.
        """
        return None


@dataclass(eq=False)
class ServerHalf(Half, ABC, Generic[C]):
    """What the parameter server does; called by one thread. See also WorkerHalf.

    Attributes:
        parameters: float32, shape (N,): the global model. Only the server half writes to it.
        version: number of updates in the model, the clock i.
    """

    config: C
    layout: Layout
    workers: int
    rng: Generator
    parameters: Vector
    version: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        """Make the state that this half keeps beside the model."""

    @abstractmethod
    def push(self, worker: int, update: Update, now: float) -> Sequence[Applied]:
        """Take one update; the frame has checked its sizes, indices, values and version.

        The update may be kept and applied later; its arrays are its own.

        Returns:
            The updates that are in the model because of it: this one, a whole round, or none yet.
            ``version`` has grown by as many.

        Raises:
            RejectedError: the payload is of a kind this algorithm does not send; nothing changed.
        """

    def join(self, worker: int) -> None:
        """A worker takes part from now on. Joining twice is harmless."""

    def leave(self, worker: int, now: float) -> Sequence[Applied]:
        """A worker is gone for good: nobody may go on waiting for it. Returns what ``push`` does.

        What it has pushed before is in the next model all the same.
        """
        return ()

    def ready(self, worker: int) -> bool:
        """Whether a worker that waits for a reply may have it now."""
        return True

    def awaited(self) -> Collection[int]:
        """Whom those wait for that are not ready."""
        return ()

    def pull(self, worker: int, now: float) -> Reply:
        """The reply for a worker that is ready; the same when it is asked for again.

        The model in it is lent until the next call.
        """
        return Reply(Dense(self.parameters), self.version)

    def next_tick(self, now: float) -> float:
        """When ``tick`` is to be called; asked after every call. Never before ``now``."""
        return inf

    def tick(self, now: float) -> Ticked:
        """The time that ``next_tick`` named has come.

        A half that sends orders names its ticks ahead: the workers of a simulation have computed up
        to the next one.
        """
        return Ticked()

    def wants_loss(self) -> bool:
        """Whether the loss of the model as it is now is to be measured; asked after every call."""
        return False

    def measured(self, measured: Measured) -> None:
        """An evaluation is there, whether this half wanted it or not."""


Halves = tuple[type[WorkerHalf[Any]], type[ServerHalf[Any]]]


class AlgorithmConfig(Part, ABC):
    """Base of every algorithm's options in a scenario; ``name`` selects the member.

    Attributes:
        OBEYS: fields of Orders that its worker half enforces. Others may not be ordered.
        SENDS_ORDERS: whether its server half sends orders between replies.
        SENDS_MESSAGES: whether its worker half sends updates without a step.
        THINKS: whether a wait between computing and pushing is part of its experiments; a scenario
            may not ask for one where it is not.
        PACKS: whether what it pushes can be packed; a scenario's encoding is raw where it cannot.
        SENDS_KEYS: whether it sends Keyed payloads, whose core keys are to travel once.
        WAKES: whether its worker half is to be woken amid steps.
        TAKES_STREAMS: whether its workers may train on samples that come as they go.
    """

    OBEYS: ClassVar[frozenset[str]] = frozenset({"batch_size"})
    SENDS_ORDERS: ClassVar[bool] = False
    SENDS_MESSAGES: ClassVar[bool] = False
    THINKS: ClassVar[bool] = True
    PACKS: ClassVar[bool] = True
    SENDS_KEYS: ClassVar[bool] = False
    WAKES: ClassVar[bool] = False
    TAKES_STREAMS: ClassVar[bool] = False

    @abstractmethod
    def halves(self) -> Halves:
        """The classes of its worker half and its server half."""

    def most_shared(self, batch_size: int) -> int:
        """How many samples a worker shares at once at the most, in a scenario of this batch size.

        A live message that is longer than these and the model need is refused.
        """
        return 0

    def worker(self, layout: Layout, workers: int, *, rng: Generator) -> WorkerHalf[Any]:
        """The worker half, for one of ``workers`` workers."""
        return self.halves()[0](self, layout, workers, rng)

    def server(
        self, layout: Layout, workers: int, *, parameters: Vector, rng: Generator
    ) -> ServerHalf[Any]:
        """The server half, which owns ``parameters`` (the initial model) from now on."""
        return self.halves()[1](self, layout, workers, rng, parameters)


P = TypeVar("P", bound=Payload)


def expect(kind: type[P], payload: Payload) -> P:
    """The payload, if it is of the kind that the algorithm sends.

    Raises:
        RejectedError: it is of another.
    """
    if not isinstance(payload, kind):
        found = type(payload).__name__
        raise RejectedError(f"a {found} payload, expected a {kind.__name__} one")
    return payload
