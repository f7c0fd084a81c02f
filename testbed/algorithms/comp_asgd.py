"""Comp-ASGD: ASGD that sends a share of the gradient's entries.

The compressed baseline in C. Hardy, E. Le Merrer, B. Sericola, "Distributed deep learning on
edge-devices: feasibility via adaptive compression", IEEE NCA 2017 (sections III.B and V). The
selection is that of R. Shokri, V. Shmatikov, "Privacy-preserving deep learning", CCS 2015.

Symbols, as the paper writes them:

    Θ    parameters      the model: the server's, and the copy that a worker pulled
    ΔΘ   gradient        the mean gradient of a worker's mini-batch
    ΔΘ~  update          its entries that are sent, at indices k
    c    ratio           share of the entries that is sent
    i    version         the server's clock, the number of updates applied so far
    j    update.version  the clock of the model that ΔΘ was computed on
    σ    sigma           staleness: number of updates applied in between, i - j
    α    learning_rate

    worker:   Θ, j ← pull      ΔΘ ← SGD step at Θ      ΔΘ~ ← select(ΔΘ, c)      push ΔΘ~, j
    server:   σ ← i - j        for k in ΔΘ~: Θ_k ← Θ_k - α / max(1, σ) ΔΘ~_k       i ← i + 1

Deviations: none, but the paper does not specify the selection. Here ``select`` is "largest" (by
magnitude, the lower index first among equal magnitudes) or "random", and ``scope`` is "global" (the
whole model) or "per_tensor"; max(1, floor(c size)) entries are selected, and entries that are
exactly zero are not sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from testbed.algorithms.base import Applied, Halves, ServerHalf, Update, WorkerHalf, expect
from testbed.algorithms.parts.damping import applied, damped, divisor
from testbed.algorithms.parts.sparse import SparseOptions
from testbed.payloads import Sparse, Vector


class CompAsgd(SparseOptions):
    """Comp-ASGD's options.

    Attributes:
        learning_rate: α, the learning rate.
        ratio: c, the share of the entries that is sent.
    """

    name: Literal["comp-asgd"]

    def halves(self) -> Halves:
        return CompAsgdWorker, CompAsgdServer


class CompAsgdWorker(WorkerHalf[CompAsgd]):
    """Pushes the selected entries of every gradient; the others are dropped."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._select = self.config.selection(self.layout, self.rng)

    def step(self, gradient: Vector, samples: int, now: float) -> Update:
        """ΔΘ~ ← select(ΔΘ, c); push ΔΘ~, j."""
        return Update(self._select(gradient), self.version, samples)


class CompAsgdServer(ServerHalf[CompAsgd]):
    """Applies updates in order of arrival; no worker waits for another."""

    def push(self, worker: int, update: Update, now: float) -> Sequence[Applied]:
        """Θ_k ← Θ_k - α / max(1, σ) ΔΘ~_k."""
        sent = expect(Sparse, update.payload)
        k = sent.indices
        sigma = np.full(k.shape, self.version - update.version)
        by = divisor(sigma)
        self.parameters[k] -= damped(self.config.learning_rate, by) * sent.values
        self.version += 1
        return [applied(worker, self.version - 1, pulled=update.version, sigma=sigma, divisor=by)]
