"""SSP: stale-synchronous SGD; nobody leads the slowest worker by more than s steps.

Q. Ho et al., "More effective distributed ML via a stale synchronous parallel parameter server",
NIPS 2013; as a baseline in H. Hu, D. Wang, C. Wu, "Distributed machine learning through
heterogeneous edge systems" (ADSP), AAAI 2020.

Symbols, as the ADSP paper writes them:

    W     parameters      the model: the server's, and the copy of it that a worker trains
    g     gradient        the mean gradient of a worker's mini-batch
    η'    learning_rate   of the workers; may fall with the steps of each
    M     workers         how many the scenario has
    s     slack           the lead that is allowed, in completed steps; 1 is BSP
    step  _steps          completed steps of every worker
    min   _known          the least of them, as a worker's last pull brought it

    worker:   W_i ← W_i - η' g    push η' g    if step_i - min ≥ s: W_i, min ← pull
    server:   W ← W - push / M    a pull of i waits until step_i - min_j step_j < s

Deviations: the server decides when a worker has to pull, from the same numbers; the reply to any
other push has no entries. A worker that has left is not waited for; M stays as it was. The authors'
s is Ho's plus 1.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import ClassVar, Literal

import numpy as np

from testbed.algorithms.base import (
    Applied,
    Halves,
    Reply,
    ServerHalf,
    Update,
    WorkerHalf,
    expect,
)
from testbed.algorithms.parts.local_rate import LocalRate, LocalRateOptions
from testbed.algorithms.parts.options import Steps
from testbed.payloads import Dense, Sparse, Vector


class Ssp(LocalRateOptions):
    """SSP's options, beside those of η'.

    Attributes:
        slack: s.
    """

    THINKS: ClassVar[bool] = False

    name: Literal["ssp"]
    slack: Steps = 40

    def halves(self) -> Halves:
        return SspWorker, SspServer


class SspWorker(WorkerHalf[Ssp]):
    """Trains its copy, pushes every step, and takes a model over when one comes."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._rate = LocalRate(self.config)

    def receive(self, reply: Reply, now: float) -> None:
        """W_i ← W, after a pull."""
        if isinstance(reply.model, Dense):
            super().receive(reply, now)

    def step(self, gradient: Vector, samples: int, now: float) -> Update:
        """W_i ← W_i - η' g; push η' g."""
        step = np.float32(self._rate.next()) * gradient
        self.parameters -= step
        return Update(Dense(step), self.version, samples)


class SspServer(ServerHalf[Ssp]):
    """Applies updates in the order of their arrival; who leads by too much waits."""

    def __post_init__(self) -> None:
        self._steps: dict[int, int] = {}
        self._known: dict[int, int] = {}
        self._pulled: dict[int, int] = {}  # version of the model that a worker trains
        self._pulling: dict[int, bool] = {}  # whether the reply to its last push is a pull's

    def join(self, worker: int) -> None:
        """It pulls before its next step; one that joins later starts at the slowest's steps."""
        self._steps.setdefault(worker, self._least())
        self._pulling.pop(worker, None)

    def leave(self, worker: int, now: float) -> Sequence[Applied]:
        """Its steps are not counted any more."""
        for kept in (self._steps, self._known, self._pulled, self._pulling):
            kept.pop(worker, None)
        return ()

    def push(self, worker: int, update: Update, now: float) -> Sequence[Applied]:
        """W ← W - push / M."""
        self.parameters -= expect(Dense, update.payload).values / np.float32(self.workers)
        self._steps[worker] += 1
        self._pulling[worker] = self._steps[worker] - self._known[worker] >= self.config.slack
        self.version += 1
        version = self.version - 1
        return [Applied(worker, version, staleness=version - update.version)]

    def ready(self, worker: int) -> bool:
        """If it need not pull, or does not lead by too much."""
        leads = self._steps[worker] - self._least()
        return not self._pulling.get(worker, True) or leads < self.config.slack

    def awaited(self) -> Collection[int]:
        """The slowest."""
        least = self._least()
        return [worker for worker, steps in self._steps.items() if steps == least]

    def pull(self, worker: int, now: float) -> Reply:
        """W and min, or no entries of W if the worker goes on with its copy."""
        if not self._pulling.get(worker, True):  # who has never pushed pulls
            return Reply(Sparse.nothing(), self._pulled[worker])
        self._known[worker], self._pulled[worker] = self._least(), self.version
        return super().pull(worker, now)

    def _least(self) -> int:
        return min(self._steps.values(), default=0)
