"""DC-ASGD: asynchronous SGD that makes up for the delay of a gradient; an algorithm of one's own.

S. Zheng et al., "Asynchronous stochastic gradient descent with delay compensation", ICML 2017,
arXiv:1609.08326, algorithms 1 and 2.

Symbols, as the paper writes them:

    w         parameters      the model
    g         gradient        a worker's gradient, at the model that it pulled
    η         learning_rate
    λ         compensation    how much of the delay is made up for; 0 is plain asynchronous SGD
    w_bak(m)  _pulled[m]      the model that worker m pulled

    worker m:   w ← pull    push g(w)
    server:     w ← w - η (g + λ g ⊙ g ⊙ (w - w_bak(m)))

Deviations: λ is a constant (the paper's DC-ASGD-c).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import numpy as np
from numpy.random import Generator
from pydantic import Field

from testbed.algorithms.base import (
    AlgorithmConfig,
    Applied,
    Halves,
    Reply,
    ServerHalf,
    Update,
    WorkerHalf,
    expect,
)
from testbed.algorithms.parts.options import LearningRate
from testbed.payloads import Dense, Vector
from testbed.payloads.layout import Layout


class DcAsgd(AlgorithmConfig):
    """DC-ASGD's options.

    Attributes:
        learning_rate: η.
        compensation: λ.
    """

    learning_rate: LearningRate = 0.1
    compensation: Annotated[float, Field(ge=0)] = 0.04

    def halves(self) -> Halves:
        """See testbed/algorithms/base.py."""
        return Worker, Server


class Worker(WorkerHalf[DcAsgd]):
    """Pushes every gradient as it is."""

    def step(self, gradient: Vector, samples: int, now: float) -> Update:
        """push g(w); a copy, for the gradient is only lent."""
        return Update(Dense(gradient.copy()), self.version, samples)


class Server(ServerHalf[DcAsgd]):
    """Applies each gradient at once, corrected by how far the model has moved since the pull."""

    def __init__(
        self, config: DcAsgd, layout: Layout, workers: int, rng: Generator, parameters: Vector
    ) -> None:
        super().__init__(config, layout, workers, rng, parameters)
        self._pulled: dict[int, Vector] = {}

    def pull(self, worker: int, now: float) -> Reply:
        """w_bak(m) ← w."""
        self._pulled[worker] = self.parameters.copy()
        return super().pull(worker, now)

    def push(self, worker: int, update: Update, now: float) -> Sequence[Applied]:
        """w ← w - η (g + λ g ⊙ g ⊙ (w - w_bak(m)))."""
        gradient = expect(Dense, update.payload).values
        moved = self.parameters - self._pulled[worker]
        corrected = gradient + np.float32(self.config.compensation) * gradient * gradient * moved
        self.parameters -= np.float32(self.config.learning_rate) * corrected
        self.version += 1
        version = self.version - 1
        return [Applied(worker, version, staleness=version - update.version)]

    def leave(self, worker: int, now: float) -> Sequence[Applied]:
        """What it pulled is of no use any more."""
        self._pulled.pop(worker, None)
        return ()
