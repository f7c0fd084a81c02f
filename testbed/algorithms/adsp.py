"""ADSP: no worker ever waits; all commit equally often, and fast workers train more in between.

H. Hu, D. Wang, C. Wu, "Distributed machine learning through heterogeneous edge systems", AAAI 2020.

Symbols, as the paper writes them:

    W    parameters      the model: the server's, and worker i's copy W_i of it
    g    gradient        the mean gradient of a worker's mini-batch
    U    update          the sum of a worker's steps since its last commit
    η'   learning_rate   the workers' rate; the server's is 1/M, M the scenario's number of workers
    Γ    check_period    emulated seconds between two checkpoints
    c    commits         each worker's commits so far
    O    duration        duration of a worker's last commit, push and pull; 0 before the first
    d    commit rate     commits per check period; parts/commit_rate.py searches for it
    μ    momentum        explicit momentum of the server's steps, besides the implicit; 0 by default

    worker:   g at W_i; U ← U + η' g; W_i ← W_i - η' g
              on the timeout of Γ / ΔC_i - O_i: push U, W_i ← pull, U ← 0, set the timer again
    server:   V ← μ V + (1 - μ) U / M; W ← W - V, on arrival
              at a checkpoint: C ← max c + d; ΔC_i ← C - c_i, to every worker at once

Deviations: the paper's scheduler searches for C, counted from the start; this one for d, like the
authors' code, so that trials are distinct, and again once the loss rises by 30 % within a Γ. A
mini-batch during which the timer expires pauses for the commit, and its g, taken at the W_i before
the commit, enters the next U. If no mini-batch ended since the last commit, the next end is the
timeout. A worker silent for 3 Γ (3 Γ / d if d < 1) does not count in max c. A late worker starts
with the minimum c, and sets its first timer when it has pulled.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import ClassVar, Literal

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
from testbed.algorithms.parts.commit_rate import CommitRateSearch
from testbed.algorithms.parts.commits import CommitCounts, CommitTimer, MomentumCommitServer
from testbed.algorithms.parts.local_sgd import Accumulation, LocalRate, LocalRateOptions
from testbed.algorithms.parts.options import Momentum, PositiveDuration
from testbed.algorithms.parts.reward import SearchOptions
from testbed.payloads import Vector


class Adsp(SearchOptions, LocalRateOptions):
    """ADSP's options, in addition to those of η' and of the search.

    Attributes:
        momentum: μ of equation 2, as varied in the paper's figure 3c.
        min_commit_interval: the minimum of Γ / ΔC_i.
        commit: `at_timeout`: on the timeout; `after_batch`: after the mini-batch during which the
            timer expires, like the authors' code.
    """

    OBEYS: ClassVar[frozenset[str]] = frozenset({"batch_size", "commit_interval"})
    SENDS_ORDERS: ClassVar[bool] = True
    WAKES: ClassVar[bool] = True
    THINKS: ClassVar[bool] = False

    name: Literal["adsp"]
    momentum: Momentum = 0.0
    min_commit_interval: PositiveDuration | None = None
    commit: Literal["at_timeout", "after_batch"] = "at_timeout"

    def halves(self) -> Halves:
        return AdspWorker, AdspServer


class AdspWorker(WorkerHalf[Adsp]):
    """Trains its copy until the commit timer expires."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._update = Accumulation(self.parameters)
        self._rate = LocalRate(self.config)
        grid = self.config.commit == "at_timeout"
        self._timer = CommitTimer(grid, interval=float(self.config.check_period))

    def receive(self, reply: Reply, now: float) -> None:
        """W_i ← W; the commit is over."""
        super().receive(reply, now)
        self._timer.pulled(now, late=reply.version > 0)

    def obey(self, orders: Orders, now: float) -> None:
        """Set the timer to the new Γ / ΔC_i."""
        super().obey(orders, now)
        self._timer.change(orders.commit_interval or float(self.config.check_period), now)

    def alarm(self) -> float:
        """Return the timeout, if there are steps to commit."""
        return self._timer.due() if self._timer.grid and self._update.steps else inf

    def wake(self, now: float) -> Update:
        """Push U: the timer expired during a mini-batch."""
        self._timer.push(now)
        return self._update.take(self.version)

    def step(self, gradient: Vector, samples: int, now: float) -> Update | None:
        """U ← U + η' g; W_i ← W_i - η' g; push U if the timer has expired."""
        self._update.add(gradient, samples, rate=self._rate.next())
        return self.wake(now) if now >= self._timer.due() else None


class AdspServer(MomentumCommitServer):
    """Applies commits on arrival, and sends the workers their commit intervals at checkpoints."""

    def __post_init__(self) -> None:
        super().__post_init__()
        least = float(self.config.min_commit_interval or 0.0)
        self._counts = CommitCounts(float(self.config.check_period), least)
        self._search = CommitRateSearch(self.config)

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

    def next_tick(self, now: float) -> float:
        return max(now, self._search.due)

    def tick(self, now: float) -> Ticked:
        """At a checkpoint, send Γ / ΔC_i to every worker."""
        rate = self._search.advance(now)
        intervals = {} if rate is None else self._counts.intervals(rate, now)
        return Ticked(orders={worker: Orders(commit_interval=s) for worker, s in intervals.items()})

    def wants_loss(self) -> bool:
        return self._search.wants_loss()

    def measured(self, measured: Measured) -> None:
        self._search.measured(measured.time, measured.loss)
