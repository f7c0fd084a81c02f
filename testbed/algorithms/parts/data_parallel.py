"""Rounds of the data-parallel methods Plump-DP, Quant-DP and Slim-DP.

As in section 3.3 of the Slim-DP paper, where a worker accumulates the updates of its solver,
including momentum and weight decay:

    worker k:   p times: v_k ← m v_k + g + λ w_k,  δ_k ← δ_k + v_k,  w_k ← w_k - η v_k
                push a payload made from δ_k
    server:     wait for all; w ← w - η Σ δ_k / K

K is the number of workers that pushed in the round. A worker that pushed has the previous round's
model, and may get a part of the model or an update; a worker that joined since gets all of it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal

import numpy as np

from testbed.algorithms.base import AlgorithmConfig, Applied, Reply, Update, expect
from testbed.algorithms.parts.local_sgd import LocalStepsWorker
from testbed.algorithms.parts.momentum import accelerate
from testbed.algorithms.parts.options import Decay, LearningRate, Momentum, Steps
from testbed.algorithms.parts.rounds import RoundServer
from testbed.payloads import Dense, Payload, Vector


class DataParallelOptions(AlgorithmConfig):
    """Options of all three.

    Attributes:
        learning_rate: η, of the server's step and of the workers' steps.
        momentum: m, of each worker's own steps.
        weight_decay: λ, of each worker's own steps.
        aggregate: whether the server takes the mean of the δ_k or, as in the paper, their sum.
        local_steps: p, mini-batches that a worker trains on before it pushes.
    """

    learning_rate: LearningRate = 0.1
    momentum: Momentum = 0.0
    weight_decay: Decay = 0.0
    aggregate: Literal["mean", "sum"] = "mean"
    local_steps: Steps = 1


class DataParallelWorker(LocalStepsWorker):
    """Trains its copy of the model; pushes the sum of its updates, encoded by ``payload``."""

    SCALED: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self._velocity = np.zeros_like(self.parameters)

    def step(self, gradient: Vector, samples: int, now: float) -> Update | None:
        """v_k ← m v_k + g + λ w_k, δ_k ← δ_k + v_k, w_k ← w_k - η v_k; after p steps push."""
        with np.errstate(invalid="ignore"):  # the server refuses values that are not finite
            accelerate(self._velocity, gradient, self.parameters, self.config)
            update = super().step(self._velocity, samples, now)
        if update is None:
            return None
        delta = expect(Dense, update.payload).values
        if np.isfinite(delta).all():
            return replace(update, payload=self.payload(delta))
        self._velocity[:] = 0  # one bad batch must not spoil all later ones
        return update

    def payload(self, delta: Vector) -> Payload:
        """Return the payload to send for δ_k; by default, all N values."""
        return Dense(delta)


class SteppedWorker(DataParallelWorker):
    """Applies each step of the server to its copy of the server's model."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._model = self.parameters.copy()  # the server's, without the worker's own steps

    @abstractmethod
    def apply(self, step: Payload) -> None:
        """Subtract a round's step from ``_model``."""

    def receive(self, reply: Reply, now: float) -> None:
        """Apply the step, or take the whole model."""
        if isinstance(reply.model, Dense):
            self._model[:] = reply.model.values
        else:
            self.apply(reply.model)
        self.parameters[:] = self._model
        self.version = reply.version


class DataParallelServer(RoundServer[Any]):
    """Applies one step per round, from all pushes in it."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._holders: set[int] = set()  # workers with the model that the next reply builds on
        self._down: Payload | None = None  # reply for the holders; None for the whole model

    def join(self, worker: int) -> None:
        """Add a worker; it starts with the whole model."""
        super().join(worker)
        self._holders.discard(worker)

    def leave(self, worker: int, now: float) -> Sequence[Applied]:
        """Remove a worker; if it returns, it starts with the whole model."""
        self._holders.discard(worker)
        return super().leave(worker, now)

    def push(self, worker: int, update: Update, now: float) -> Sequence[Applied]:
        """Take an update; its sender holds the model that its δ_k builds on."""
        applied = super().push(worker, update, now)
        self._holders.add(worker)
        return applied

    def pull(self, worker: int, now: float) -> Reply:
        """Return the round's reply to the holders, or the whole model."""
        if self._down is None or worker not in self._holders:
            return super().pull(worker, now)
        return Reply(self._down, self.version)

    def mean(self, round_: Sequence[Update]) -> Vector:
        """η Σ δ_k / K, the step of a round."""
        options: DataParallelOptions = self.config
        step = super().mean(round_) if options.aggregate == "mean" else self.total(round_)
        return np.float32(options.learning_rate) * step
