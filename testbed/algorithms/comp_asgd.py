"""Comp-ASGD: ASGD that sends a share of the gradient's entries.

The compressed baseline in C. Hardy, E. Le Merrer, B. Sericola, "Distributed deep learning on
edge-devices: feasibility via adaptive compression", IEEE NCA 2017 (sections III.B and V). The
selection is that of R. Shokri, V. Shmatikov, "Privacy-preserving deep learning", CCS 2015.

Symbols, as the paper writes them:

    Θ    parameters      the model: the server's, and the copy of it that a worker pulled
    ΔΘ   gradient        the mean gradient of a worker's mini-batch
    ΔΘ~  update          the entries of it that are sent, at indices k
    c    ratio           share of the entries that is sent
    i    version         the server's clock, the number of updates applied so far
    j    update.version  the clock of the model that ΔΘ was computed on
    σ    sigma           staleness: how many updates were applied in between, i - j
    α    learning_rate

    worker:   Θ, j ← pull      ΔΘ ← SGD step at Θ      ΔΘ~ ← select(ΔΘ, c)      push ΔΘ~, j
    server:   σ ← i - j        for k in ΔΘ~: Θ_k ← Θ_k - α / max(1, σ) ΔΘ~_k       i ← i + 1

Deviations: none, but the paper leaves open how entries are selected. Here ``select`` is "largest"
(by magnitude; of equal ones those of lower index) or "random", and ``scope`` is "global" (of the
whole model) or "per_tensor"; max(1, floor(c size)) entries are selected, and those that are exactly
zero are not sent.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
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
from testbed.algorithms.parts import LearningRate, Ratio, applied, damped, dense, divisor, sparse
from testbed.compress.layout import Layout
from testbed.compress.payload import Dense, Indices, Vector
from testbed.compress.topk import drawn, largest, quotas, sparsify


class CompAsgd(AlgorithmConfig):
    """Comp-ASGD's options.

    Attributes:
        learning_rate: α.
        ratio: c, the share of the entries that is sent.
        select: which entries: the largest, or a random choice.
        scope: of the whole model, or of each tensor separately.
    """

    name: Literal["comp-asgd"]
    learning_rate: LearningRate = 0.1
    ratio: Ratio = 0.01
    select: Literal["largest", "random"] = "largest"
    scope: Literal["global", "per_tensor"] = "global"

    def worker(self, layout: Layout, workers: int, *, rng: Generator) -> WorkerHalf:
        """See base."""
        return Worker(self, layout, rng=rng)

    def server(
        self, layout: Layout, workers: int, *, parameters: Vector, rng: Generator
    ) -> ServerHalf:
        """See base."""
        return Server(self, parameters)


class Worker(WorkerHalf):
    """Pushes the selected entries of every gradient; the others are dropped."""

    def __init__(self, config: CompAsgd, layout: Layout, *, rng: Generator) -> None:
        sizes = (layout.size,) if config.scope == "global" else layout.sizes
        self.parameters = np.zeros(layout.size, np.float32)
        self._version = 0
        self._quotas = quotas(sizes, config.ratio)
        self._choose: Callable[[Vector, int], Indices] = (
            largest if config.select == "largest" else partial(drawn, rng=rng)
        )

    def receive(self, reply: Reply, now: float) -> None:
        """Θ, j ← pull."""
        self.parameters[:] = dense(reply.model).values
        self._version = reply.version

    def step(self, gradient: Vector, samples: int, now: float) -> Update:
        """ΔΘ~ ← select(ΔΘ, c); push ΔΘ~, j."""
        selected = sparsify(gradient, self._quotas, choose=self._choose)
        return Update(selected, self._version, samples)


class Server(ServerHalf):
    """Applies updates in the order of their arrival; nobody waits for anybody."""

    def __init__(self, config: CompAsgd, parameters: Vector) -> None:
        self.parameters = parameters
        self.version = 0
        self._learning_rate = config.learning_rate

    def push(self, worker: int, update: Update, now: float) -> Applied:
        """Θ_k ← Θ_k - α / max(1, σ) ΔΘ~_k."""
        sent = sparse(update.payload)
        k = sent.indices
        sigma = np.full(k.shape, self.version - update.version)
        by = divisor(sigma)
        self.parameters[k] -= damped(self._learning_rate, by) * sent.values
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
