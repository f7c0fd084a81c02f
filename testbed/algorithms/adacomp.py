"""AdaComp: the largest gradients of every tensor, each damped by its own staleness.

C. Hardy, E. Le Merrer, B. Sericola, "Distributed deep learning on edge-devices: feasibility via
adaptive compression", IEEE NCA 2017 (section IV, algorithms 1 and 2).

Symbols, as the paper writes them:

    Θ    parameters      the model: the server's, and the copy of it that a worker pulled
    ΔΘ   gradient        the mean gradient of a worker's mini-batch
    ΔΘ~  update          the entries of it that are sent, at indices k
    c    ratio           share of the entries of each tensor that is sent
    i    version         the server's clock, the number of updates applied so far
    j    update.version  the clock of the model that ΔΘ was computed on
    σ_k  sigma           staleness of parameter k: the updates u, j <= u < i, with ΔΘ~_k(u) ≠ 0
    α    learning_rate

    worker:   Θ, j ← pull      ΔΘ ← SGD step at Θ      ΔΘ~ ← select_grad(ΔΘ, c)      push ΔΘ~, j
    server:   for k in ΔΘ~: Θ_k ← Θ_k - α / max(1, σ_k) ΔΘ~_k       i ← i + 1

Deviations: σ_k is not searched in the history of updates. The server counts for every parameter how
often it was touched and remembers of every worker the counts at its pull; the difference is σ_k, at
a cost that does not grow with the delay. What the paper leaves open: max(1, floor(c size)) entries
of a tensor are selected, of equal magnitudes those of lower index, and those that are exactly zero
are not sent.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from testbed.algorithms.base import (
    AlgorithmConfig,
    Applied,
    Reply,
    ServerHalf,
    Update,
    WorkerHalf,
)
from testbed.algorithms.parts import LearningRate, Ratio, applied, damped, dense, divisor, sparse
from testbed.compress.layout import Layout
from testbed.compress.payload import Dense, Vector
from testbed.compress.topk import largest, quotas, sparsify


class AdaComp(AlgorithmConfig):
    """AdaComp's options.

    Attributes:
        learning_rate: α.
        ratio: c, the share of the entries of each tensor that is sent.
    """

    name: Literal["adacomp"]
    learning_rate: LearningRate = 0.1
    ratio: Ratio = 0.01

    def worker(self, layout: Layout, workers: int, *, rng: Generator) -> WorkerHalf:
        """See base."""
        return Worker(self, layout)

    def server(
        self, layout: Layout, workers: int, *, parameters: Vector, rng: Generator
    ) -> ServerHalf:
        """See base."""
        return Server(self, parameters)


class Worker(WorkerHalf):
    """Pushes the largest entries of every tensor's gradient; the others are dropped."""

    def __init__(self, config: AdaComp, layout: Layout) -> None:
        self.parameters = np.zeros(layout.size, np.float32)
        self._version = 0
        self._quotas = quotas(layout.sizes, config.ratio)

    def receive(self, reply: Reply, now: float) -> None:
        """Θ, j ← pull."""
        self.parameters[:] = dense(reply.model).values
        self._version = reply.version

    def step(self, gradient: Vector, samples: int, now: float) -> Update:
        """ΔΘ~ ← select_grad(ΔΘ, c); push ΔΘ~, j."""
        selected = sparsify(gradient, self._quotas, choose=largest)
        return Update(selected, self._version, samples)


class Server(ServerHalf):
    """Applies updates in the order of their arrival; nobody waits for anybody."""

    def __init__(self, config: AdaComp, parameters: Vector) -> None:
        self.parameters = parameters
        self.version = 0
        self._learning_rate = config.learning_rate
        self._touches = np.zeros(parameters.shape, np.int32)
        self._touches_at_pull: dict[int, NDArray[np.int32]] = {}

    def push(self, worker: int, update: Update, now: float) -> Applied:
        """Θ_k ← Θ_k - α / max(1, σ_k) ΔΘ~_k."""
        sent = sparse(update.payload)
        k = sent.indices.astype(np.intp)  # once, and not anew in each line that follows
        touches = self._touches.take(k)
        sigma = touches - self._touches_at_pull[worker].take(k)
        by = divisor(sigma)
        np.subtract.at(self.parameters, k, damped(self._learning_rate, by) * sent.values)
        self._touches[k] = touches + (sent.values != 0)
        self.version += 1
        return applied(self.version - 1, pulled=update.version, sigma=sigma, divisor=by)

    def ready(self, worker: int) -> bool:
        """Always."""
        return True

    def pull(self, worker: int, now: float) -> Reply:
        """Θ, i; from now on the worker's σ_k are counted."""
        if worker not in self._touches_at_pull:
            self._touches_at_pull[worker] = np.empty_like(self._touches)
        self._touches_at_pull[worker][:] = self._touches
        return Reply(Dense(self.parameters), self.version)

    def join(self, worker: int) -> None:
        """The counts at its pull are taken at its pull; one that joins again keeps them."""

    def leave(self, worker: int) -> None:
        """Frees the 4 N bytes of its counts."""
        self._touches_at_pull.pop(worker, None)
