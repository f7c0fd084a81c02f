"""When an ADSP worker commits: on a grid of its own, or so long after its last pull."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class CommitTimer:
    """The timer of algorithm 2; times are emulated seconds since the training began.

    A timer of Γ / ΔC_i - O_i that is set when a commit is over, O_i after its timeout, expires
    Γ / ΔC_i after that timeout. On the grid that is so however long the mini-batch takes that was
    under way; else the time counts from the pull, and a commit waits for the end of a mini-batch.

    Attributes:
        grid: whether timeouts are on a grid.
        since: the last timeout, or the end of the last commit; at first, the training's beginning.
        pushed: when the last commit began; None before the first.
        duration: O_i, what it took.
    """

    grid: bool
    since: float = 0.0
    pushed: float | None = None
    duration: float = 0.0

    def due(self, interval: float) -> float:
        """The next timeout, with this Γ / ΔC_i."""
        return self.since + (interval if self.grid else interval - self.duration)

    def push(self, now: float, interval: float) -> None:
        """A commit begins. One that comes a whole interval late begins a new grid."""
        due = self.due(interval)
        self.pushed = now
        self.since = due if now < due + interval else now

    def pulled(self, now: float) -> None:
        """The commit is over, if there was one."""
        if self.pushed is not None and not self.grid:
            self.since, self.duration = now, now - self.pushed
