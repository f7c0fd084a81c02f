"""Commit counts of all workers, and the commit intervals that keep them equal (ADSP)."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf

DEAD_AFTER = 3
"""Check periods without a commit; at rates below one, commit intervals."""


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
