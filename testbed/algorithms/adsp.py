"""ADSP: no worker ever waits; all commit equally often, and fast ones train more in between.

H. Hu, D. Wang, C. Wu, "Distributed machine learning through heterogeneous edge systems", AAAI 2020.

Symbols, as the paper writes them:

    W    parameters      the model: the server's, and the copy W_i of it that a worker trains
    g    gradient        the mean gradient of a worker's mini-batch
    U    update          the sum of a worker's steps since its last commit
    η'   learning_rate   of the workers; the server's is 1/M, M the workers that the scenario has
    Γ    check_period    emulated seconds between two checkpoints
    c    commits         of each worker so far
    O    duration        of a worker's last commit, push and pull; 0 before the first
    d    commit rate     commits in a check period; parts/commit_rate.py searches for it
    μ    momentum        of the server's steps, beside what asynchrony brings about; 0 by default

    worker:   g at W_i; U ← U + η' g; W_i ← W_i - η' g
              once Γ / ΔC_i - O_i have passed since the last pull: push U, W_i ← pull, U ← 0
    server:   V ← μ V + (1 - μ) U / M; W ← W - V, as it comes
              at a checkpoint: C ← max c + d; ΔC_i ← C - c_i, to every worker at once

Deviations: the paper's scheduler searches for C, counted from the beginning; this one for d, as the
authors' does, so that trials can be told apart. Who was not heard of for 3 Γ (3 Γ / d if d < 1) is
not in max c. Who joins late begins with the least c. η' is constant.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

import numpy as np

from testbed.algorithms.base import (
    Applied,
    Halves,
    Measured,
    Orders,
    Reply,
    Ticked,
    Update,
    WorkerHalf,
)
from testbed.algorithms.parts.accumulation import Accumulation
from testbed.algorithms.parts.commit_counts import CommitCounts
from testbed.algorithms.parts.commits import CommitServer
from testbed.algorithms.parts.options import Lasting, LearningRate, Momentum
from testbed.algorithms.parts.search_options import SearchOptions
from testbed.payloads import Vector


class Adsp(SearchOptions):
    """ADSP's options, beside those of the search.

    Attributes:
        learning_rate: η'.
        momentum: μ of equation 2, which the paper varies in figure 3c.
        min_commit_interval: the least Γ / ΔC_i.
    """

    OBEYS: ClassVar[frozenset[str]] = frozenset({"batch_size", "commit_interval"})
    SENDS_ORDERS: ClassVar[bool] = True
    THINKS: ClassVar[bool] = False

    name: Literal["adsp"]
    learning_rate: LearningRate = 0.1
    momentum: Momentum = 0.0
    min_commit_interval: Lasting | None = None

    def halves(self) -> Halves:
        return AdspWorker, AdspServer


class AdspWorker(WorkerHalf[Adsp]):
    """Trains its copy until it is time to commit, which it looks at after every mini-batch."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._update = Accumulation(self.parameters)
        self._pulled = 0.0  # when the last commit was over; at first, the training's beginning
        self._pushed: float | None = None  # when it began
        self._duration = 0.0  # O_i

    def receive(self, reply: Reply, now: float) -> None:
        """W_i ← W; the commit is over."""
        super().receive(reply, now)
        if self._pushed is not None:
            self._pulled, self._duration = now, now - self._pushed

    def step(self, gradient: Vector, samples: int, now: float) -> Update | None:
        """U ← U + η' g; W_i ← W_i - η' g; push U if Γ / ΔC_i - O_i have passed."""
        self._update.add(gradient, samples, rate=self.config.learning_rate)
        interval = self.orders.commit_interval or float(self.config.check_period)
        if now - self._pulled < interval - self._duration:
            return None
        self._pushed = now
        return self._update.take(self.version)


class AdspServer(CommitServer[Adsp]):
    """Applies commits as they come, and tells the workers at checkpoints how often to commit."""

    def __post_init__(self) -> None:
        least = float(self.config.min_commit_interval or 0.0)
        self._counts = CommitCounts(float(self.config.check_period), least)
        self._search = self.config.search()
        self._velocity = np.zeros_like(self.parameters) if self.config.momentum else None  # V

    def join(self, worker: int) -> None:
        self._counts.join(worker)

    def leave(self, worker: int, now: float) -> Sequence[Applied]:
        self._counts.leave(worker)
        return ()

    def push(self, worker: int, update: Update, now: float) -> Sequence[Applied]:
        """W ← W - V; c_i ← c_i + 1."""
        applied = super().push(worker, update, now)
        self._counts.count(worker, now)
        return applied

    def step(self, update: Vector) -> Vector:
        """V ← μ V + (1 - μ) U / M."""
        mean = super().step(update)
        if self._velocity is None:
            return mean
        momentum = np.float32(self.config.momentum)
        self._velocity = momentum * self._velocity + (1 - momentum) * mean
        return self._velocity

    def next_tick(self, now: float) -> float:
        return max(now, self._search.due)

    def tick(self, now: float) -> Ticked:
        """At a checkpoint, ΔC_i goes to every worker."""
        rate = self._search.advance(now)
        intervals = {} if rate is None else self._counts.intervals(rate, now)
        return Ticked(orders={worker: Orders(commit_interval=s) for worker, s in intervals.items()})

    def wants_loss(self) -> bool:
        return self._search.wants_loss()

    def measured(self, measured: Measured) -> None:
        self._search.measured(measured.time, measured.loss)
