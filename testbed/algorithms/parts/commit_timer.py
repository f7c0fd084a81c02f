"""When an ADSP worker commits: on its own grid, or an interval after its last pull."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class CommitTimer:
    """The timer of algorithm 2; times are emulated seconds since training began.

    A timer of Γ / ΔC_i - O_i, set when a commit ends, O_i after its timeout, expires Γ / ΔC_i
    after that timeout. On the grid, this holds however long the mini-batch in progress takes;
    otherwise the time counts from the pull, and a commit waits for the end of a mini-batch.

    Attributes:
        grid: whether timeouts are on a grid.
        since: the last timeout, or the end of the last commit; initially the start of training.
        pushed: when the last commit began; None before the first.
        duration: O_i, the duration of the last commit.
    """

    grid: bool
    since: float = 0.0
    pushed: float | None = None
    duration: float = 0.0

    def due(self, interval: float) -> float:
        """Return the next timeout, for this Γ / ΔC_i."""
        return self.since + (interval if self.grid else interval - self.duration)

    def push(self, now: float, interval: float) -> None:
        """Begin a commit. A commit that is a whole interval late starts a new grid."""
        due = self.due(interval)
        self.pushed = now
        self.since = due if now < due + interval else now

    def pulled(self, now: float) -> None:
        """End the commit, if there was one."""
        if self.pushed is not None and not self.grid:
            self.since, self.duration = now, now - self.pushed
