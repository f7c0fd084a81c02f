"""The contract between an algorithm and the frame that runs it, live or simulated.

An algorithm is one file: a config (what stands in the scenario), a worker half and a server half.
It is pure. Time (``now``, emulated seconds since the training began) and randomness are arguments,
nothing blocks or counts bytes, nothing knows whether it runs in containers or in a simulation.

    worker half                               server half
      receive(reply, now)          <──────      pull(worker, now) -> Reply
      step(gradient, samples, now) ──────>      push(worker, update, now) -> Applied
                                                ready(worker): may this worker have its reply?

Blocking is the frame's work: after every push, tick and leave it asks ``ready`` for each worker
that waits, and releases together all that are.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field

from numpy.random import Generator
from pydantic import BaseModel, ConfigDict

from testbed.compress.layout import Layout
from testbed.compress.payload import Payload, Vector


@dataclass(frozen=True)
class Orders:
    """What the server asks of a worker until it says otherwise.

    Attributes:
        local_steps: mini-batches between two pushes; None leaves it to the worker half.
        commit_interval: emulated seconds between two pushes; None for no such rule.
        batch_size: samples of a mini-batch; None for the scenario's.
    """

    local_steps: int | None = None
    commit_interval: float | None = None
    batch_size: int | None = None


@dataclass(frozen=True)
class Reply:
    """What a pull brings to a worker.

    Attributes:
        model: the whole model (Dense) or a part of it (Sparse).
        version: the server's clock, the number of updates applied so far.
        orders: see Orders.
    """

    model: Payload
    version: int
    orders: Orders = field(default_factory=Orders)


@dataclass(frozen=True)
class Update:
    """What a worker pushes.

    Attributes:
        payload: the algorithm's choice of what to send.
        version: version of the reply that the worker last received.
        samples: training samples that went into it.
    """

    payload: Payload
    version: int
    samples: int


@dataclass(frozen=True)
class Applied:
    """What applying one update did, for the record.

    Attributes:
        version: the clock i at which the update was applied; the model is at i + 1 afterwards.
        staleness: i - j, with j the version the worker had pulled.
        sigma_mean: mean over the sent entries of the staleness that divided the learning rate;
            0 for an update without entries.
        sigma_max: the largest of them.
        step_scale: mean over the sent entries of 1 / max(1, sigma); 1 for an empty update.
    """

    version: int
    staleness: int
    sigma_mean: float
    sigma_max: int
    step_scale: float


class WorkerHalf(ABC):
    """What one worker does with replies and gradients.

    Attributes:
        parameters: float32, shape (N,): the worker's model. The frame computes gradients at these
            values, in place; only the worker half writes to them.
    """

    parameters: Vector

    @abstractmethod
    def receive(self, reply: Reply, now: float) -> None:
        """Take a reply over into ``parameters``. The reply's arrays are only lent: copy them."""

    @abstractmethod
    def step(self, gradient: Vector, samples: int, now: float) -> Update | None:
        """Use one gradient of the mean loss over ``samples`` samples.

        Returns:
            The update to push now, or None to go on training locally. ``gradient`` is only lent:
            what the update holds must not alias it.
        """


class ServerHalf(ABC):
    """What the parameter server does; called by one thread.

    Attributes:
        parameters: float32, shape (N,): the global model. Only the server half writes to it.
        version: number of updates applied so far, the clock i.
    """

    parameters: Vector
    version: int

    @abstractmethod
    def push(self, worker: int, update: Update, now: float) -> Applied:
        """Apply one update. The frame has checked its sizes, indices, values and version.

        Raises:
            RejectedError: the payload is of a kind this algorithm does not send; nothing changed.
        """

    @abstractmethod
    def ready(self, worker: int) -> bool:
        """Whether a worker that waits for a reply may have it now."""

    @abstractmethod
    def pull(self, worker: int, now: float) -> Reply:
        """The reply for a worker that is ready. The model in it is lent until the next push."""

    @abstractmethod
    def join(self, worker: int) -> None:
        """A worker takes part from now on. Joining twice is harmless."""

    @abstractmethod
    def leave(self, worker: int) -> None:
        """A worker is gone for good; without this a crashed worker would hang every barrier."""

    def tick(self, now: float, loss: float | None) -> Mapping[int, Orders]:
        """Time passes, or a loss was measured. Returns orders that must reach workers at once."""
        return {}


class AlgorithmConfig(BaseModel, ABC):
    """Base of every algorithm's options in a scenario; ``name`` selects the member."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @abstractmethod
    def worker(self, layout: Layout, workers: int, *, rng: Generator) -> WorkerHalf:
        """The worker half, for one of ``workers`` workers."""

    @abstractmethod
    def server(
        self, layout: Layout, workers: int, *, parameters: Vector, rng: Generator
    ) -> ServerHalf:
        """The server half, which owns ``parameters`` (the initial model) from now on."""
