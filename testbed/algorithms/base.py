"""The contract between an algorithm and the frame that runs it, live or simulated.

An algorithm is one file: a config (its options in a scenario), a worker half and a server half.
It is pure. Time (``now``, emulated seconds since training began) and randomness are arguments.
It never blocks, counts no bytes, and cannot tell containers from a simulation.

    worker half                                server half
      obey(orders, now)             <──────      tick(now) -> Ticked(applied, orders by worker)
      receive(reply, now)           <──────      pull(worker, now) -> Reply
      next_batch_size(stream, now) -> count
      taken(samples, now)           ──────>      push(worker, update, now) -> Applied, ...
      wake(now), during a step      ──────>      ready(worker): may this worker have its reply?
      step(gradient, samples, now)

Methods that an asynchronous algorithm with one step per push does not need have defaults here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields
from math import inf, nan
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from testbed.algorithms.config import AlgorithmConfig as AlgorithmConfig  # noqa: PLC0414
from testbed.algorithms.config import Halves as Halves  # noqa: PLC0414
from testbed.algorithms.parts.state import own_state, set_own_state
from testbed.errors import RejectedError
from testbed.payloads import Dense, Payload, Vector, zeros
from testbed.payloads.layout import Layout
from testbed.payloads.notes import Note

C = TypeVar("C", bound=AlgorithmConfig)

Samples = NDArray[np.int64]
"""Training samples, as indices into the training set."""


@dataclass(frozen=True)
class Orders:
    """Settings that the server orders from a worker. A field stays in force until it is replaced.

    Attributes:
        local_steps: mini-batches between two pushes; None leaves a field unchanged.
        commit_interval: emulated seconds between two pushes.
        batch_size: samples per mini-batch.
    """

    local_steps: int | None = None
    commit_interval: float | None = None
    batch_size: int | None = None

    def replaced_by(self, newer: Orders) -> Orders:
        """Return these orders, updated with the fields that ``newer`` sets."""
        return Orders(**(vars(self) | {name: getattr(newer, name) for name in newer.given}))

    @property
    def given(self) -> frozenset[str]:
        """The fields that are set."""
        return frozenset(f.name for f in fields(self) if getattr(self, f.name) is not None)


NO_ORDERS = Orders()


@dataclass(frozen=True)
class Reply:
    """The server's answer to a pull.

    Attributes:
        model: the whole model, a part of it or an update to it, as the worker half expects.
        version: version of the model that the worker's next update builds on.
        orders: orders that apply to the worker from now on.
        note: additional numbers, text and arrays, by name.
        shared: other workers' samples, which the worker's next step uses in addition to its own.
    """

    model: Payload
    version: int
    orders: Orders = NO_ORDERS
    note: Note = field(default_factory=dict)
    shared: Samples | None = None


@dataclass(frozen=True)
class Update:
    """A message from a worker to the server.

    Attributes:
        payload: the values that the algorithm sends.
        version: version of the reply that the worker last received.
        samples: number of training samples behind it.
        steps: number of training steps behind it; 0 for a message that does not change the model,
            such as a vote.
        note: additional numbers, text and arrays, by name.
        shared: samples for other workers; the transport adds their pixels.
    """

    payload: Payload
    version: int
    samples: int
    steps: int = 1
    note: Note = field(default_factory=dict)
    shared: Samples | None = None


@dataclass(frozen=True)
class Applied:
    """The record of an update that is now in the model: its worker's oldest pending update.

    Attributes:
        worker: the worker that sent it.
        version: number of updates in the model before it.
        staleness: how many of these the worker had not seen, excluding those that are applied
            together with it.
        sigma_mean: mean over the sent entries of the staleness that divided the learning rate;
            0 for an update without entries.
        sigma_max: the maximum over the same entries.
        step_scale: mean over the sent entries of 1 / max(1, sigma); 1 for an empty update;
            0 for one that was dropped.
    """

    worker: int
    version: int
    staleness: int = 0
    sigma_mean: float = 0.0
    sigma_max: int = 0
    step_scale: float = 1.0


@dataclass(frozen=True)
class Ticked:
    """The result of a server half's tick; its orders reach workers at once, without a reply."""

    applied: Sequence[Applied] = ()
    orders: Mapping[int, Orders] = field(default_factory=dict)


@dataclass(frozen=True)
class Measured:
    """An evaluation of the model at an emulated time and version."""

    time: float
    version: int
    loss: float


@dataclass(frozen=True)
class Stream:
    """The state of a worker's sample source.

    Attributes:
        own: number of training samples that the worker has; None if unknown.
        rate: measured arrival rate, samples per second; None if all samples are available at once.
        buffered: samples waiting in the buffer; None if all samples are available at once.
        least: the minimum number of samples per step that the model can compute on: 2 if it uses
            batch normalisation. A step that asks for fewer gets this number.
    """

    batch_size: int
    own: int | None = None
    rate: float | None = None
    buffered: int | None = None
    least: int = 1


class AlgorithmHalf:
    """Base of both halves: a state that checkpoints save."""

    def state(self) -> Mapping[str, Any]:
        """Return this half's own state: by default, all its own attributes except functions.

        Model, version, orders and random generator are saved separately. A state may hold numbers,
        text, arrays, containers, NumPy generators, and objects of classes in this half's file.
        """
        return own_state(self)

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore what ``state`` returned, into a new half of the same scenario."""
        set_own_state(self, state)


@dataclass(eq=False)
class WorkerHalf(AlgorithmHalf, ABC, Generic[C]):
    """The worker's side: handles replies, samples and gradients.

    Attributes:
        workers: number of workers in the scenario.
        rng: its random generator.
        parameters: float32, shape (N,): the worker's model. The frame computes gradients at these
            values, in place; only the worker half writes to them.
        version: version of the last reply.
        orders: the orders in force.
        index: its worker's number, set after its creation.
        shared_seed: a seed that all workers know, and the server does not use; likewise.
        loss: mean loss of the samples of the present step, if the config ``takes_losses``.
    """

    config: C
    layout: Layout
    workers: int
    rng: Generator
    parameters: Vector = field(default=None, kw_only=True, repr=False)  # type: ignore[arg-type]
    index: int = field(default=0, init=False)
    shared_seed: int = field(default=0, init=False)
    version: int = field(default=0, init=False)
    orders: Orders = field(default=NO_ORDERS, init=False)
    loss: float = field(default=nan, init=False)

    def __post_init__(self) -> None:
        if self.parameters is None:
            self.parameters = zeros(self.layout.size)

    def obey(self, orders: Orders, now: float) -> None:
        """Put orders in force; they arrive with a reply or between two replies."""
        self.orders = orders

    def receive(self, reply: Reply, now: float) -> Update | None:
        """Apply a reply to ``parameters``. The reply's arrays are only borrowed: copy them.

        Returns:
            An update to send at once, without a step, or None to continue.
        """
        self.parameters[:] = expect(Dense, reply.model).values
        self.version = reply.version
        return None

    def next_batch_size(self, stream: Stream, now: float) -> int:
        """Return how many samples the next step takes; at least 1."""
        return self.orders.batch_size or stream.batch_size

    def on_samples(self, samples: Samples, now: float) -> Update | None:
        """Handle the samples of the next step, before anything is computed.

        ``samples`` is empty if the stream was silent for too long: then no step follows.

        Returns:
            An update to send before the step, such as a vote, or None to continue.
        """
        return None

    @abstractmethod
    def step(self, gradient: Vector, samples: int, now: float) -> Update | None:
        """Use one gradient of the mean loss over ``samples`` samples.

        Returns:
            The update to push now, or a message that precedes it, such as a vote; None to continue
            training locally. ``gradient`` is only borrowed: the update must not alias it.
        """

    def alarm(self) -> float:
        """Return when to call ``wake`` if a step is running then; needs ``WAKES`` in the config."""
        return inf

    def wake(self, now: float) -> Update | None:
        """Handle the alarm, during a step whose gradient is not available yet.

        Returns:
            An update to push at once, without that step, or None to continue.
        """
        return None


@dataclass(eq=False)
class ServerHalf(AlgorithmHalf, ABC, Generic[C]):
    """The parameter server's side; called from a single thread. See also WorkerHalf.

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
        """Initialise the state that this half keeps in addition to the model."""

    @abstractmethod
    def push(self, worker: int, update: Update, now: float) -> Sequence[Applied]:
        """Process one update; the frame has checked its sizes, indices, values and version.

        The half may keep the update and apply it later; it owns the update's arrays.

        Returns:
            The updates that this call applied to the model: this one, a whole round, or none yet.
            ``version`` has increased by their number.

        Raises:
            RejectedError: this algorithm does not send this kind of payload; nothing changed.
        """

    def join(self, worker: int) -> None:
        """Add a worker. Idempotent."""

    def leave(self, worker: int, now: float) -> Sequence[Applied]:
        """Remove a worker for good: no worker may wait for it any longer. Returns as ``push`` does.

        The updates it pushed before still enter the next model.
        """
        return ()

    def ready(self, worker: int) -> bool:
        """Return whether a waiting worker may have its reply now."""
        return True

    def awaited(self) -> Collection[int]:
        """Return the workers that block those that are not ready."""
        return ()

    def pull(self, worker: int, now: float) -> Reply:
        """Return the reply for a worker that is ready; a repeated call returns the same reply.

        The model in it is borrowed until the next call.
        """
        return Reply(Dense(self.parameters), self.version)

    def next_tick(self, now: float) -> float:
        """Return when to call ``tick``, not before ``now``; asked after every call."""
        return inf

    def tick(self, now: float) -> Ticked:
        """Run the work planned for the time that ``next_tick`` returned.

        A half that sends orders must announce its ticks in advance: in a simulation, workers have
        already computed up to the next tick.
        """
        return Ticked()

    def wants_loss(self) -> bool:
        """Return whether to measure the loss of the current model; asked after every call."""
        return False

    def measured(self, measured: Measured) -> None:
        """Receive an evaluation, requested by this half or not."""


P = TypeVar("P", bound=Payload)


def expect(kind: type[P], payload: Payload) -> P:
    """Return the payload if it is of the kind that the algorithm sends.

    Raises:
        RejectedError: it is of another kind.
    """
    if not isinstance(payload, kind):
        found = type(payload).__name__
        raise RejectedError(f"a {found} payload, expected a {kind.__name__} one")
    return payload
