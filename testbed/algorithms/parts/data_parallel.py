"""Rounds of the data-parallel methods: what Plump-DP, Quant-DP and Slim-DP have in common.

As the Slim-DP paper writes them in section 3.3, where a worker accumulates the updates of its
solver, momentum and weight decay included:

    worker k:   p times: v_k ← m v_k + g + λ w_k,  δ_k ← δ_k + v_k,  w_k ← w_k - η v_k
                push what of δ_k is sent
    server:     wait for all; w ← w - η Σ δ_k / K

K is how many have pushed in the round. A worker that has pushed has the model of the round before,
and may be sent a part or an update of it; one that has joined since then gets the whole model.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from testbed.algorithms.base import AlgorithmConfig, Applied, Reply, Update, WorkerHalf
from testbed.algorithms.parts.barrier import AveragingServer
from testbed.algorithms.parts.options import Decay, LearningRate, Momentum, Steps
from testbed.payloads import Dense, Payload, Vector


class RoundOptions(AlgorithmConfig):
    """Options of the three.

    Attributes:
        learning_rate: η, of the server's step and of a worker's own.
        momentum: m, of each worker's own steps.
        weight_decay: λ, likewise.
        aggregate: whether the server takes the mean of the δ_k or, as the paper writes, their sum.
        local_steps: p, mini-batches that a worker trains on before it pushes.
    """

    learning_rate: LearningRate = 0.1
    momentum: Momentum = 0.0
    weight_decay: Decay = 0.0
    aggregate: Literal["mean", "sum"] = "mean"
    local_steps: Steps = 1


class RoundWorker(WorkerHalf[Any]):
    """Trains its copy of the model; pushes what ``payload`` makes of the sum of its updates."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._delta = np.zeros_like(self.parameters)
        self._velocity = np.zeros_like(self.parameters)
        self._steps = self._samples = 0

    def step(self, gradient: Vector, samples: int, now: float) -> Update | None:
        """v_k ← m v_k + g + λ w_k, δ_k ← δ_k + v_k, w_k ← w_k - η v_k; after p steps push."""
        with np.errstate(invalid="ignore"):  # the server refuses what is not finite
            self._accumulate(gradient)
        self._steps += 1
        self._samples += samples
        if self._steps < self.config.local_steps:
            return None
        delta, self._delta = self._delta, np.zeros_like(self._delta)
        if np.isfinite(delta).all():
            payload = self.payload(delta)
        else:
            payload = Dense(delta)
            self._velocity[:] = 0  # one bad batch must not spoil all that follow
        update = Update(payload, self.version, self._samples, self._steps)
        self._steps = self._samples = 0
        return update

    def _accumulate(self, gradient: Vector) -> None:
        options: RoundOptions = self.config
        self._velocity *= np.float32(options.momentum)
        self._velocity += gradient
        if options.weight_decay:
            self._velocity += np.float32(options.weight_decay) * self.parameters
        self._delta += self._velocity
        self.parameters -= np.float32(options.learning_rate) * self._velocity

    @abstractmethod
    def payload(self, delta: Vector) -> Payload:
        """What of δ_k is sent."""


class RoundServer(AveragingServer[Any]):
    """Makes one step a round, of all that was pushed in it."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._holders: set[int] = set()  # of the model that the next reply builds on
        self._down: Payload | None = None  # for them; None for the whole model

    def join(self, worker: int) -> None:
        """It begins with the whole model."""
        super().join(worker)
        self._holders.discard(worker)

    def leave(self, worker: int, now: float) -> Sequence[Applied]:
        """Should it come back, it begins with the whole model."""
        self._holders.discard(worker)
        return super().leave(worker, now)

    def push(self, worker: int, update: Update, now: float) -> Sequence[Applied]:
        """It has the model that its δ_k builds on."""
        applied = super().push(worker, update, now)
        self._holders.add(worker)
        return applied

    def pull(self, worker: int, now: float) -> Reply:
        """What the round has made for all who follow it, or the whole model."""
        if self._down is None or worker not in self._holders:
            return super().pull(worker, now)
        return Reply(self._down, self.version)

    def mean(self, round_: Sequence[Update]) -> Vector:
        """η Σ δ_k / K, the step of a round; sums go in the order of its workers."""
        options: RoundOptions = self.config
        total = np.zeros_like(self.parameters)
        for update in round_:
            self.add(update.payload, total)
        if options.aggregate == "mean":
            total /= np.float32(len(round_))
        return np.float32(options.learning_rate) * total

    @abstractmethod
    def add(self, payload: Payload, total: Vector) -> None:
        """Add what was sent of a δ_k."""
