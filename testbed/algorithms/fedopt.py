"""FedOpt: the server treats the average change of a round as a gradient of its own optimizer.

S. J. Reddi, Z. Charles, M. Zaheer, Z. Garrett, K. Rush, J. Konečný, S. Kumar, H. B. McMahan,
"Adaptive federated optimization", ICLR 2021, algorithm 2: FedAdagrad, FedAdam, FedYogi; with `sgd`,
FedAvgM of T. H. Hsu, H. Qi, M. Brown, 2019.

Symbols, as the paper writes them:

    x       parameters             the model, and worker i's copy of it
    η_l, η  learning_rate, server_learning_rate
    Δ       mean                   minus the average of U_i = x - x_i over the round
    m, v    moments                of Δ; v begins at τ²
    β1, β2  beta1, beta2
    τ       tau                    degree of adaptivity

    worker:   E epochs of local training; push U_i    (parts/epochs.py)
    server:   m ← β1 m + (1 - β1) Δ              sgd: m ← β1 m + Δ, x ← x + η m
              adagrad: v ← v + Δ²    adam: v ← β2 v + (1 - β2) Δ²
              yogi:    v ← v - (1 - β2) Δ² sign(v - Δ²)
              x ← x + η m / (√v + τ)

Deviations: the average is weighted by samples.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from testbed.algorithms.base import Halves, Update
from testbed.algorithms.parts.epochs import EpochsWorker
from testbed.algorithms.parts.federated import FederatedRounds
from testbed.algorithms.parts.options import LearningRate
from testbed.algorithms.parts.selection import SelectingServer
from testbed.payloads import Vector
from testbed.values.fields import BelowOne, PositiveNumber


class FedOpt(FederatedRounds):
    """FedOpt's options.

    Attributes:
        server_optimizer: the server's optimizer.
        server_learning_rate: η, the server's learning rate.
        beta1: β1, decay of the first moment; the momentum of `sgd`.
        beta2: β2, decay of the second moment, of `adam` and `yogi`.
        tau: τ, degree of adaptivity: the smaller, the more adaptive.
    """

    name: Literal["fedopt"]
    server_optimizer: Literal["sgd", "adagrad", "adam", "yogi"] = "adam"
    server_learning_rate: LearningRate = 0.1
    beta1: BelowOne = 0.9
    beta2: BelowOne = 0.99
    tau: PositiveNumber = 1e-3

    def halves(self) -> Halves:
        return EpochsWorker, FedOptServer


class FedOptServer(SelectingServer[FedOpt]):
    """Takes one step of its optimizer per round."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._first = np.zeros_like(self.parameters)  # m, of -Δ
        self._second = np.full_like(self.parameters, self.config.tau**2)  # v

    def mean(self, round_: Sequence[Update]) -> Vector:
        """The step of the server's optimizer, to be subtracted."""
        options, change = self.config, super().mean(round_)
        rate, keep = np.float32(options.server_learning_rate), np.float32(1 - options.beta2)
        self._first *= np.float32(options.beta1)
        if options.server_optimizer == "sgd":
            self._first += change
            return rate * self._first
        self._first += np.float32(1 - options.beta1) * change
        square = change * change
        if options.server_optimizer == "adagrad":
            self._second += square
        elif options.server_optimizer == "adam":
            self._second += keep * (square - self._second)
        else:
            self._second -= keep * square * np.sign(self._second - square)
        root: Vector = np.sqrt(self._second)
        return rate * self._first / (root + np.float32(options.tau))
