"""SSP: stale-synchronous SGD; no worker leads the slowest one by more than s steps.

Q. Ho et al., "More effective distributed ML via a stale synchronous parallel parameter server",
NIPS 2013; as a baseline in H. Hu, D. Wang, C. Wu, "Distributed machine learning through
heterogeneous edge systems" (ADSP), AAAI 2020.

Symbols, as the ADSP paper writes them:

    W     parameters      the model: the server's, and the copy that a worker trains
    g     gradient        the mean gradient of a worker's mini-batch
    η'    learning_rate   the workers' rate; may decay with each worker's steps
    M     workers         number of workers in the scenario
    s     slack           the maximum lead, in completed steps; 1 is BSP
    step  _steps          completed steps of every worker
    min   _known          the minimum of these, as of a worker's last pull

    worker:   W_i ← W_i - η' g    push η' g    if step_i - min ≥ s: W_i, min ← pull
    server:   W ← W - push / M    a pull of i waits until step_i - min_j step_j < s

Deviations: the server decides when a worker must pull, from the same numbers; the reply to any
other push has no entries. No worker waits for one that left; M does not change. The authors' s
is Ho's plus 1.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import ClassVar, Literal

from testbed.algorithms.base import Applied, Halves, Reply, Update, expect
from testbed.algorithms.parts.commits import CommitServer
from testbed.algorithms.parts.local_sgd import LocalRateOptions, StepWorker
from testbed.algorithms.parts.options import Steps
from testbed.payloads import Dense, Sparse, Vector


class Ssp(LocalRateOptions):
    """SSP's options, in addition to those of η'.

    Attributes:
        slack: s, the maximum lead over the slowest worker, in steps.
    """

    THINKS: ClassVar[bool] = False

    name: Literal["ssp"]
    slack: Steps = 40

    def halves(self) -> Halves:
        return SspWorker, SspServer


class SspWorker(StepWorker):
    """Trains its copy, pushes every step, and replaces its copy when a reply holds a model."""

    def receive(self, reply: Reply, now: float) -> None:
        """W_i ← W, after a pull."""
        if isinstance(reply.model, Dense):
            super().receive(reply, now)

    def step(self, gradient: Vector, samples: int, now: float) -> Update:
        """W_i ← W_i - η' g; push η' g."""
        update = super().step(gradient, samples, now)
        self.parameters -= expect(Dense, update.payload).values
        return update


class SspServer(CommitServer[Ssp]):
    """Applies updates in order of arrival; a worker whose lead is too large waits."""

    def __post_init__(self) -> None:
        self._steps: dict[int, int] = {}
        self._known: dict[int, int] = {}
        self._pulled: dict[int, int] = {}  # version of the model that the worker trains
        self._pulling: dict[int, bool] = {}  # whether its last push is followed by a pull

    def join(self, worker: int) -> None:
        """Let it pull before its next step; a late worker starts with the slowest one's steps."""
        self._steps.setdefault(worker, self._least())
        self._pulling.pop(worker, None)

    def leave(self, worker: int, now: float) -> Sequence[Applied]:
        """Stop counting its steps."""
        for kept in (self._steps, self._known, self._pulled, self._pulling):
            kept.pop(worker, None)
        return ()

    def push(self, worker: int, update: Update, now: float) -> Sequence[Applied]:
        """W ← W - push / M."""
        applied = super().push(worker, update, now)
        self._steps[worker] += 1
        self._pulling[worker] = self._steps[worker] - self._known[worker] >= self.config.slack
        return applied

    def ready(self, worker: int) -> bool:
        """Return True if it need not pull, or its lead is below s."""
        leads = self._steps[worker] - self._least()
        return not self._pulling.get(worker, True) or leads < self.config.slack

    def awaited(self) -> Collection[int]:
        """Return the slowest workers."""
        least = self._least()
        return [worker for worker, steps in self._steps.items() if steps == least]

    def pull(self, worker: int, now: float) -> Reply:
        """W and min, or no entries if the worker continues with its copy."""
        if not self._pulling.get(worker, True):  # a worker that never pushed pulls
            return Reply(Sparse.nothing(), self._pulled[worker])
        self._known[worker], self._pulled[worker] = self._least(), self.version
        return super().pull(worker, now)

    def _least(self) -> int:
        return min(self._steps.values(), default=0)
