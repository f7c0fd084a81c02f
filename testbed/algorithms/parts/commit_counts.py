"""How often every worker has committed, and how soon it has to, so that all keep up (ADSP)."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf

DEAD_AFTER = 3
"""Check periods without a commit; at rates below one, commit intervals."""


@dataclass
class CommitCounts:
    """c_i of every worker that takes part.

    Attributes:
        period: Γ, in emulated seconds.
        least_interval: no worker is to commit more often, in emulated seconds.
        commits: c, by worker.
    """

    period: float
    least_interval: float = 0.0
    commits: dict[int, int] = field(default_factory=dict)
    _heard: dict[int, float] = field(default_factory=dict)  # when the last commit came

    def join(self, worker: int) -> None:
        """One that joins late begins with the least c, and as if it had just been heard of."""
        self.commits.setdefault(worker, min(self.commits.values(), default=0))
        self._heard.setdefault(worker, max(self._heard.values(), default=0.0))

    def leave(self, worker: int) -> None:
        """It does not count any more."""
        self.commits.pop(worker, None)
        self._heard.pop(worker, None)

    def count(self, worker: int, now: float) -> None:
        """c_i ← c_i + 1."""
        self.commits[worker] += 1
        self._heard[worker] = now

    def intervals(self, rate: float, now: float) -> dict[int, float]:
        """A checkpoint: C ← max c + d; Γ / (C - c_i) for every worker, in emulated seconds.

        Who was not heard of for long may be dead: it is not in max c. Should it be ahead of C, it
        commits no more in this period.
        """
        since = now - DEAD_AFTER * self.period / min(1.0, rate)
        heard = [c for worker, c in self.commits.items() if self._heard[worker] >= since]
        target = max(heard or self.commits.values(), default=0) + rate
        return {worker: self._interval(target - c) for worker, c in self.commits.items()}

    def _interval(self, missing: float) -> float:
        return max(self.period / missing, self.least_interval) if missing > 0 else inf
