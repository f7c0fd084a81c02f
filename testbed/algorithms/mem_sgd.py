"""Mem-SGD: the largest entries are sent, and what is not sent is kept for later (error feedback).

S. U. Stich, J.-B. Cordonnier, M. Jaggi, "Sparsified SGD with memory", NeurIPS 2018, algorithm 2, in
its synchronous form.

Symbols, as the paper writes them:

    x    parameters      the model
    g    gradient        a worker's mini-batch gradient
    m    memory          a worker's steps that were not sent yet
    k    ratio           share of the entries that is sent
    η    learning_rate

    worker:   x ← pull;  u ← comp_k(m + η g);  m ← m + η g - u;  push u
    server:   wait for all;  x ← x - Σ u / M

Deviations: the paper's workers share memory and do not wait for one another; here a round has the
mean of the workers' steps. comp_k is "largest" or "random", of the model or of each tensor. With
the encoding `packed16`, m is without the rounding of what was sent.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np

from testbed.algorithms.base import Halves, Update, WorkerHalf, expect
from testbed.algorithms.parts.rounds import RoundServer
from testbed.algorithms.parts.sparse import SparseOptions
from testbed.payloads import Payload, Sparse, Vector


class MemSgd(SparseOptions):
    """Mem-SGD's options.

    Attributes:
        learning_rate: η, the learning rate.
        ratio: k, the share of the entries that is sent.
    """

    name: Literal["mem-sgd"]

    def halves(self) -> Halves:
        return MemSgdWorker, MemSgdServer


class MemSgdWorker(WorkerHalf[MemSgd]):
    """Pushes the selected entries of its memory."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._select = self.config.selection(self.layout, self.rng)
        self._memory = np.zeros_like(self.parameters)

    def step(self, gradient: Vector, samples: int, now: float) -> Update:
        """u ← comp_k(m + η g); m ← m + η g - u; push u."""
        with np.errstate(invalid="ignore"):  # the server refuses values that are not finite
            self._memory += np.float32(self.config.learning_rate) * gradient
        sent = self._select(self._memory)
        self._memory[sent.indices] = 0
        return Update(sent, self.version, samples)


class MemSgdServer(RoundServer[MemSgd]):
    """Applies the mean of a round's steps."""

    PAYLOAD: ClassVar[type[Payload]] = Sparse

    def add(self, payload: Payload, total: Vector) -> None:
        """Σ u."""
        sent = expect(Sparse, payload)
        total[sent.indices] += sent.values
