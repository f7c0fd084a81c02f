"""AdaComp: the largest gradient entries of every tensor, each damped by its own staleness.

C. Hardy, E. Le Merrer, B. Sericola, "Distributed deep learning on edge-devices: feasibility via
adaptive compression", IEEE NCA 2017 (section IV, algorithms 1 and 2).

Symbols, as the paper writes them:

    Θ    parameters      the model: the server's, and the copy that a worker pulled
    ΔΘ   gradient        the mean gradient of a worker's mini-batch
    ΔΘ~  update          its entries that are sent, at indices k
    c    ratio           share of each tensor's entries that is sent
    i    version         the server's clock, the number of updates applied so far
    j    update.version  the clock of the model that ΔΘ was computed on
    σ_k  sigma           staleness of parameter k: count of updates u, j <= u < i, with ΔΘ~_k(u) ≠ 0
    α    learning_rate

    worker:   Θ, j ← pull      ΔΘ ← SGD step at Θ      ΔΘ~ ← select_grad(ΔΘ, c)      push ΔΘ~, j
    server:   for k in ΔΘ~: Θ_k ← Θ_k - α / max(1, σ_k) ΔΘ~_k       i ← i + 1

Deviations: the server does not search σ_k in a history of updates. It counts the updates of every
parameter and stores these counts at each worker's pull; the difference is σ_k, at a cost that does
not grow with the delay. Not specified in the paper: max(1, floor(c size)) entries of a tensor are
selected, the lower index first among equal magnitudes, and entries that are exactly zero are not
sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

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
from testbed.algorithms.parts.damping import applied, damped, divisor
from testbed.algorithms.parts.options import LearningRate, Share
from testbed.payloads import Sparse, Vector
from testbed.payloads.topk import largest, quotas, sparsify


class AdaComp(AlgorithmConfig):
    """AdaComp's options.

    Attributes:
        learning_rate: α, the learning rate.
        ratio: c, the share of the entries of each tensor that is sent.
    """

    name: Literal["adacomp"]
    learning_rate: LearningRate = 0.1
    ratio: Share = 0.01

    def halves(self) -> Halves:
        return AdaCompWorker, AdaCompServer


class AdaCompWorker(WorkerHalf[AdaComp]):
    """Pushes the largest entries of every tensor's gradient; the others are dropped."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._quotas = quotas(self.layout.sizes, self.config.ratio)

    def step(self, gradient: Vector, samples: int, now: float) -> Update:
        """ΔΘ~ ← select_grad(ΔΘ, c); push ΔΘ~, j."""
        selected = sparsify(gradient, self._quotas, choose=largest)
        return Update(selected, self.version, samples)


class AdaCompServer(ServerHalf[AdaComp]):
    """Applies updates in order of arrival; no worker waits for another."""

    def __post_init__(self) -> None:
        self._touches = np.zeros(self.parameters.shape, np.int32)
        self._touches_at_pull: dict[int, NDArray[np.int32]] = {}

    def push(self, worker: int, update: Update, now: float) -> Sequence[Applied]:
        """Θ_k ← Θ_k - α / max(1, σ_k) ΔΘ~_k."""
        sent = expect(Sparse, update.payload)
        k = sent.indices.astype(np.intp)  # convert once, not in each line below
        touches = self._touches.take(k)
        sigma = touches - self._touches_at_pull[worker].take(k)
        by = divisor(sigma)
        np.subtract.at(self.parameters, k, damped(self.config.learning_rate, by) * sent.values)
        self._touches[k] = touches + (sent.values != 0)
        self.version += 1
        return [applied(worker, self.version - 1, pulled=update.version, sigma=sigma, divisor=by)]

    def pull(self, worker: int, now: float) -> Reply:
        """Θ, i; the worker's σ_k count from here."""
        if worker not in self._touches_at_pull:
            self._touches_at_pull[worker] = np.empty_like(self._touches)
        self._touches_at_pull[worker][:] = self._touches
        return super().pull(worker, now)

    def leave(self, worker: int, now: float) -> Sequence[Applied]:
        """Free the 4 N bytes of its counts."""
        self._touches_at_pull.pop(worker, None)
        return ()
