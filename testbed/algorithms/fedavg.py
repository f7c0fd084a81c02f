"""FedAvg: in each round, a sample of the workers train whole epochs; the server averages models.

H. B. McMahan, E. Moore, D. Ramage, S. Hampson, B. Agüera y Arcas, "Communication-efficient learning
of deep networks from decentralized data", AISTATS 2017, algorithm 1.

Symbols, as the paper writes them:

    w    parameters        the model w_t of a round, and worker k's copy w^k of it
    C    fraction          share of the workers that take part in a round
    S    chosen            the workers of the round: max(C K, 1) of K at random
    E    local_epochs      passes of a worker over its own samples in a round
    B    batch_size        set in the scenario
    n_k  Update.samples    number of a worker's samples; here E n_k, which gives the same weights
    η    learning_rate

    worker:   E times: for every batch b of its samples: w^k ← w^k - η g(w^k; b)
    server:   S_t at random; wait for all in S_t; w_{t+1} ← Σ n_k w^k / Σ n_k, over S_t

Deviations: a worker sends w_t - w^k, an update like that of other algorithms; for B = ∞, set the
scenario's batch_size to all samples. The server does not wait for a worker that left; its earlier
push counts in the round. Workers that are not in S_t wait. If a model cannot train on one sample,
a single sample left at the end of an epoch is added to the batch before it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Literal

from testbed.algorithms.base import (
    AlgorithmConfig,
    Applied,
    Halves,
    Stream,
    Update,
    WorkerHalf,
)
from testbed.algorithms.parts.local_sgd import Accumulation
from testbed.algorithms.parts.options import Count, LearningRate, Share
from testbed.algorithms.parts.rounds import RoundServer, weighted
from testbed.payloads import Vector


class FedAvg(AlgorithmConfig):
    """FedAvg's options.

    Attributes:
        learning_rate: η, the workers' learning rate.
        local_epochs: E, local epochs per round.
        fraction: C, the share of the workers per round.
    """

    name: Literal["fedavg"]
    learning_rate: LearningRate = 0.1
    local_epochs: Count = 1
    fraction: Share = 1.0

    def halves(self) -> Halves:
        return FedAvgWorker, FedAvgServer


class FedAvgWorker(WorkerHalf[FedAvg]):
    """Trains its copy for E epochs, and pushes the change."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._update = Accumulation(self.parameters)
        self._own = 0  # n_k

    def next_batch_size(self, stream: Stream, now: float) -> int:
        """B samples, or the rest of the epoch; a rest too small for a step is added to B."""
        self._own = stream.own or stream.batch_size
        left = self._own - self._update.samples % self._own
        batch = super().next_batch_size(stream, now)
        return left if left < batch + stream.least else batch

    def step(self, gradient: Vector, samples: int, now: float) -> Update | None:
        """w^k ← w^k - η g; after E epochs push."""
        self._update.add(gradient, samples, rate=self.config.learning_rate)
        if self._update.samples < self.config.local_epochs * self._own:
            return None
        return self._update.take(self.version)


class FedAvgServer(RoundServer[FedAvg]):
    """Runs each round with a random sample of the workers."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._chosen: set[int] = set()
        self._choose(range(self.workers))

    def join(self, worker: int) -> None:
        """Add a worker to choose from."""
        super().join(worker)
        if not self._chosen:  # all had left
            self._chosen = {worker}

    def ready(self, worker: int) -> bool:
        """Return True if the worker is in the current round and has not pushed in it."""
        return worker in self._chosen and super().ready(worker)

    def awaited(self) -> Collection[int]:
        """Return the workers of the round that have not pushed."""
        return self._chosen & self._members - self._pushed.keys()

    def mean(self, round_: Sequence[Update]) -> Vector:
        """Σ n_k U_k / Σ n_k."""
        return weighted(round_, self.parameters.size)

    def _close(self, now: float) -> Sequence[Applied]:
        """Choose the workers of the next round."""
        applied = super()._close(now)
        if not self._pushed and (applied or not self.awaited()):
            self._choose(sorted(self._members))
        return applied

    def _choose(self, among: Sequence[int]) -> None:
        """S_t: max(C K, 1) of K."""
        count = min(len(among), max(1, round(self.config.fraction * len(among))))
        self._chosen = set(self.rng.choice(among, count, replace=False).tolist())
