"""ASGD: asynchronous SGD; the staleness of an update divides its learning rate.

The baseline in C. Hardy, E. Le Merrer, B. Sericola, "Distributed deep learning on edge-devices:
feasibility via adaptive compression", IEEE NCA 2017 (section V). The division is that of W. Zhang,
S. Gupta, X. Lian, J. Liu, "Staleness-aware async-SGD for distributed deep learning", IJCAI 2016.

Symbols, as the paper writes them:

    Θ    parameters      the model: the server's, and the copy that a worker pulled
    ΔΘ   gradient        the mean gradient of a worker's mini-batch, which it pushes
    i    version         the server's clock, the number of updates applied so far
    j    update.version  the clock of the model that ΔΘ was computed on
    σ    sigma           staleness: number of updates applied in between, i - j
    α    learning_rate

    worker:   Θ, j ← pull        ΔΘ ← SGD step at Θ       push ΔΘ, j
    server:   σ ← i - j          Θ ← Θ - α / max(1, σ) ΔΘ       i ← i + 1

Deviations: none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from testbed.algorithms.base import (
    AlgorithmConfig,
    Applied,
    Halves,
    ServerHalf,
    Update,
    WorkerHalf,
    expect,
)
from testbed.algorithms.parts.damping import applied, damped, divisor
from testbed.algorithms.parts.options import LearningRate
from testbed.payloads import Dense, Vector


class Asgd(AlgorithmConfig):
    """ASGD's options.

    Attributes:
        learning_rate: α, the learning rate.
    """

    name: Literal["asgd"]
    learning_rate: LearningRate = 0.1

    def halves(self) -> Halves:
        return AsgdWorker, AsgdServer


class AsgdWorker(WorkerHalf[Asgd]):
    """Pushes every gradient unchanged."""

    def step(self, gradient: Vector, samples: int, now: float) -> Update:
        """Push ΔΘ, j."""
        return Update(Dense(gradient.copy()), self.version, samples)


class AsgdServer(ServerHalf[Asgd]):
    """Applies updates in order of arrival; no worker waits for another."""

    def push(self, worker: int, update: Update, now: float) -> Sequence[Applied]:
        """Θ ← Θ - α / max(1, σ) ΔΘ."""
        gradient = expect(Dense, update.payload).values
        sigma = np.array([self.version - update.version])
        by = divisor(sigma)
        self.parameters -= damped(self.config.learning_rate, by) * gradient
        self.version += 1
        return [applied(worker, self.version - 1, pulled=update.version, sigma=sigma, divisor=by)]
