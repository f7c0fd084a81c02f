"""ASGD: asynchronous SGD, the learning rate divided by the staleness of the update.

The baseline in C. Hardy, E. Le Merrer, B. Sericola, "Distributed deep learning on edge-devices:
feasibility via adaptive compression", IEEE NCA 2017 (section V). The division is that of W. Zhang,
S. Gupta, X. Lian, J. Liu, "Staleness-aware async-SGD for distributed deep learning", IJCAI 2016.

Symbols, as the paper writes them:

    Θ    parameters      the model: the server's, and the copy of it that a worker pulled
    ΔΘ   gradient        what a worker pushes: the mean gradient of its mini-batch
    i    version         the server's clock, the number of updates applied so far
    j    update.version  the clock of the model that ΔΘ was computed on
    σ    sigma           staleness: how many updates were applied in between, i - j
    α    learning_rate

    worker:   Θ, j ← pull        ΔΘ ← SGD step at Θ       push ΔΘ, j
    server:   σ ← i - j          Θ ← Θ - α / max(1, σ) ΔΘ       i ← i + 1

Deviations: none.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.random import Generator

from testbed.algorithms.base import (
    AlgorithmConfig,
    Applied,
    Reply,
    ServerHalf,
    Update,
    WorkerHalf,
)
from testbed.algorithms.parts import LearningRate, applied, damped, dense, divisor
from testbed.compress.layout import Layout
from testbed.compress.payload import Dense, Vector


class Asgd(AlgorithmConfig):
    """ASGD's options.

    Attributes:
        learning_rate: α.
    """

    name: Literal["asgd"]
    learning_rate: LearningRate = 0.1

    def worker(self, layout: Layout, workers: int, *, rng: Generator) -> WorkerHalf:
        """See base."""
        return Worker(layout)

    def server(
        self, layout: Layout, workers: int, *, parameters: Vector, rng: Generator
    ) -> ServerHalf:
        """See base."""
        return Server(self, parameters)


class Worker(WorkerHalf):
    """Pushes every gradient as it is."""

    def __init__(self, layout: Layout) -> None:
        self.parameters = np.zeros(layout.size, np.float32)
        self._version = 0

    def receive(self, reply: Reply, now: float) -> None:
        """Θ, j ← pull."""
        self.parameters[:] = dense(reply.model).values
        self._version = reply.version

    def step(self, gradient: Vector, samples: int, now: float) -> Update:
        """Push ΔΘ, j."""
        return Update(Dense(gradient.copy()), self._version, samples)


class Server(ServerHalf):
    """Applies updates in the order of their arrival; nobody waits for anybody."""

    def __init__(self, config: Asgd, parameters: Vector) -> None:
        self.parameters = parameters
        self.version = 0
        self._learning_rate = config.learning_rate

    def push(self, worker: int, update: Update, now: float) -> Applied:
        """Θ ← Θ - α / max(1, σ) ΔΘ."""
        gradient = dense(update.payload).values
        sigma = np.array([self.version - update.version])
        by = divisor(sigma)
        self.parameters -= damped(self._learning_rate, by) * gradient
        self.version += 1
        return applied(self.version - 1, pulled=update.version, sigma=sigma, divisor=by)

    def ready(self, worker: int) -> bool:
        """Always."""
        return True

    def pull(self, worker: int, now: float) -> Reply:
        """Θ, i."""
        return Reply(Dense(self.parameters), self.version)

    def join(self, worker: int) -> None:
        """Nothing is kept of a worker."""

    def leave(self, worker: int) -> None:
        """Nothing is kept of a worker."""
