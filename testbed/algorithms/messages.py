"""What the two halves of an algorithm tell each other and the frame: frozen data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields

import numpy as np
from numpy.typing import NDArray

from testbed.payloads import Payload

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
    """

    model: Payload
    version: int
    orders: Orders = NO_ORDERS
    note: Mapping[str, float] = field(default_factory=dict)


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
    """

    payload: Payload
    version: int
    samples: int
    steps: int = 1
    note: Mapping[str, float] = field(default_factory=dict)


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
        rate: samples a second that arrive, measured; None where they are all there.
        buffered: samples that wait to be taken; None likewise.
    """

    batch_size: int
    rate: float | None = None
    buffered: int | None = None
