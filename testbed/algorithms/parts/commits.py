"""Commits without a barrier: each is applied on arrival; and when ADSP's workers commit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any

import numpy as np

from testbed.algorithms.base import Applied, C, ServerHalf, Update, expect
from testbed.payloads import Dense, Vector

ROUNDING = 1e-9
"""Tolerance, relative to an interval: sums of Γ / ΔC_i may be after the multiple they reach."""

DEAD_AFTER = 3
"""Check periods without a commit; at rates below one, commit intervals."""


class CommitServer(ServerHalf[C]):
    """W ← W - U / M for every U that is pushed, in order of arrival.

    M is the scenario's number of workers, even after some have left.
    """

    def push(self, worker: int, update: Update, now: float) -> Sequence[Applied]:
        """W ← W - U / M."""
        self.parameters -= self.step(expect(Dense, update.payload).values)
        version, self.version = self.version, self.version + 1
        return [Applied(worker, version, staleness=version - update.version)]

    def step(self, update: Vector) -> Vector:
        """Return what a commit of U subtracts from the model: U / M."""
        return update / np.float32(self.workers)


class MomentumCommitServer(CommitServer[Any]):
    """V ← μ V + (1 - μ) U / M; W ← W - V, if the config has a ``momentum``, μ."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._velocity = np.zeros_like(self.parameters) if self.config.momentum else None  # V

    def step(self, update: Vector) -> Vector:
        """V ← μ V + (1 - μ) U / M."""
        mean = super().step(update)
        if self._velocity is None:
            return mean
        momentum = np.float32(self.config.momentum)
        self._velocity = momentum * self._velocity + (1 - momentum) * mean
        return self._velocity


@dataclass
class CommitCounts:
    """c_i of every member.

    Attributes:
        period: Γ, in emulated seconds.
        least_interval: the minimum commit interval, in emulated seconds.
        commits: c, by worker.
    """

    period: float
    least_interval: float = 0.0
    commits: dict[int, int] = field(default_factory=dict)
    _heard: dict[int, float] = field(default_factory=dict)  # time of the last commit

    def join(self, worker: int) -> None:
        """Add a worker; a late worker starts with the minimum c, and counts as just heard."""
        self.commits.setdefault(worker, min(self.commits.values(), default=0))
        self._heard.setdefault(worker, max(self._heard.values(), default=0.0))

    def leave(self, worker: int) -> None:
        """Stop counting the worker."""
        self.commits.pop(worker, None)
        self._heard.pop(worker, None)

    def count(self, worker: int, now: float) -> None:
        """c_i ← c_i + 1."""
        self.commits[worker] += 1
        self._heard[worker] = now

    def intervals(self, rate: float, now: float) -> dict[int, float]:
        """At a checkpoint, return Γ / (C - c_i) per worker, in emulated seconds; C = max c + d.

        A worker that was silent for long may be dead: it does not count in max c. If it is ahead of
        C, it commits no more in this period.
        """
        since = now - DEAD_AFTER * self.period / min(1.0, rate)
        heard = [c for worker, c in self.commits.items() if self._heard[worker] >= since]
        target = max(heard or self.commits.values(), default=0) + rate
        return {worker: self._interval(target - c) for worker, c in self.commits.items()}

    def _interval(self, missing: float) -> float:
        return max(self.period / missing, self.least_interval) if missing > 0 else inf


@dataclass
class CommitTimer:
    """The timer of algorithm 2; times are emulated seconds since training began.

    A timer of Γ / ΔC_i - O_i, set when a commit ends, O_i after its timeout, expires Γ / ΔC_i
    after that timeout. On the grid, this holds however long the mini-batch in progress takes;
    otherwise the time counts from the pull, and a commit waits for the end of a mini-batch.

    Attributes:
        grid: whether timeouts are on a grid.
        interval: Γ / ΔC_i.
        since: the last timeout, or the end of the last commit; initially the start of training, or
            the first pull of a worker that joined late.
        pushed: when the last commit began; None before the first.
        duration: O_i, the duration of the last commit.
    """

    grid: bool
    interval: float
    since: float = 0.0
    pushed: float | None = None
    duration: float = 0.0

    def due(self) -> float:
        """Return the next timeout."""
        return self.since + (self.interval if self.grid else self.interval - self.duration)

    def change(self, interval: float, now: float) -> None:
        """Change Γ / ΔC_i. A timeout that has passed under either is now, and not earlier."""
        if self.grid and interval != self.interval:
            passed = interval < inf and self.due() - now <= ROUNDING * interval
            self.since = now - interval if passed else max(self.since, now - interval)
        self.interval = interval

    def push(self, now: float) -> None:
        """Begin a commit. A commit that is a whole interval late starts a new grid."""
        due, self.pushed = self.due(), now
        self.since = due if now < due + self.interval else now

    def pulled(self, now: float, *, late: bool) -> None:
        """End the commit; if there was none, set the timer of a worker that joined ``late``."""
        if self.pushed is None:
            self.since = now if late or now >= self.due() else self.since
        elif not self.grid:
            self.since, self.duration = now, now - self.pushed
