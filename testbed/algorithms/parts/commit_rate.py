"""ADSP's search for the commit rate: rates go out, losses come in; and what a loss is worth.

    EPOCH     d ← 1; r1 ← TRIAL(1)
              while there is time for a trial: r2 ← TRIAL(d + 1); unless r2 > r1: break; d ← d + 1
              then d until the epoch ends, or the loss has risen by 30 % from one period to the next
    TRIAL(d)  a check period at the rate d; the losses at its start, middle and end earn a reward

A period begins whenever ``advance`` returns a rate. Nothing here knows of workers or of a clock.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from typing import Literal

from testbed.algorithms.parts.reward import Point, goal, reward

DIVERGENCE_RATIO = 1.3
"""A loss that grows to so much in a check period begins a new search."""


@dataclass
class CommitRateSearch:
    """Which commit rate is in force, one check period after the other.

    Attributes:
        period: Γ, in emulated seconds; also the length of a trial.
        periods: of an epoch; at least 2.
        target: L*, the loss at which the training has converged, if that is known.
        reevaluate: whether a rate that was better is tried once more before the next.
        from_last: whether an epoch begins with the rate that the one before it has found.
        fixed: a rate that is in force all the time, and may be below 1; nothing is searched for.
        rate: d, in force.
        due: when ``advance`` is to be called next.
    """

    period: float
    periods: int
    target: float | None = None
    reevaluate: bool = False
    from_last: bool = False
    fixed: float | None = None
    rate: int = 1
    due: float = 0.0
    _stage: Literal["epoch", "middle", "end", "verdict", "period"] = "epoch"
    _left: int = 0  # periods of the epoch that have not begun
    _goal: float | None = None  # l*, one for a search
    _best: tuple[int, float] | None = None  # the rate and the reward to be beaten
    _again: bool = False  # whether this trial is one of the best rate again
    _points: list[Point] = field(default_factory=list)  # of the trial, or the last checkpoint's
    _wanted: float | None = None  # the moment whose loss is wanted
    _last: Point | None = None  # that was measured, wanted or not

    def wants_loss(self) -> bool:
        """Whether the loss of this moment's model is wanted, or that of one since."""
        return self._wanted is not None

    def measured(self, time: float, loss: float) -> None:
        """The loss of the model as it was at ``time``."""
        self._last = (time, loss)
        if self._wanted is None or time < self._wanted:
            return
        self._wanted = None
        if self._stage != "period":
            self._points.append((time, loss))
            if self._stage == "verdict":
                self.due = time
            return
        if self._points and loss >= DIVERGENCE_RATIO * self._points[-1][1]:
            self._stage, self.due = "epoch", time
        self._points = [(time, loss)]

    def advance(self, now: float) -> float | None:
        """``due`` has come. Returns the rate of the period that begins, or None if none does."""
        if self.fixed is not None:
            self.due = now + self.period
            return self.fixed
        rate = self._advance(now)
        while self.due <= now:  # the loss that it wants is there already
            rate = self._advance(now) or rate
        return rate

    def _advance(self, now: float) -> int | None:
        match self._stage:
            case "epoch":
                return self._begin_epoch(now)
            case "verdict":
                return self._judge(now)
            case "period":
                return self._begin_period(now)
            case "middle":
                self._stage, self.due = "end", now + self.period / 2
            case "end":  # the verdict waits for the loss, but not for longer than a period
                self._stage, self.due = "verdict", now + self.period
        self._want(now)
        return None

    def _begin_epoch(self, now: float) -> int:
        self._left, self._best, self._again, self._goal = self.periods, None, False, None
        return self._begin_trial(self.rate if self.from_last else 1, now)

    def _begin_trial(self, rate: int, now: float) -> int:
        """A period at ``rate`` whose losses are points of its curve."""
        self.rate, self._left = rate, self._left - 1
        self._stage, self.due = "middle", now + self.period / 2
        self._points, self._wanted = self._recent(now), None
        if not self._points:
            self._want(now)
        return rate

    def _begin_period(self, now: float) -> int:
        """A period at the rate that was found, or the first of the next epoch."""
        if not self._left:
            return self._begin_epoch(now)
        self._left, self._wanted = self._left - 1, None
        self._stage, self.due = "period", now + self.period
        if not self._recent(now):
            self._want(now)
        return self.rate

    def _want(self, now: float) -> None:
        """The loss of the model as it is now, unless it has just been measured."""
        self._wanted = now
        if self._last is not None and self._last[0] >= now:
            self.measured(*self._last)

    def _recent(self, now: float) -> list[Point]:
        """The last loss, if it is that of the moment at which a period has just ended."""
        return [point for point in self._points[-1:] if point[0] > now - self.period / 2]

    def _judge(self, now: float) -> int:
        """A trial is over: try another rate, or end the search and go on with the best."""
        best, earned = self._best, self._earned()
        if best is None or self._again or earned > best[1]:
            self._again = self.reevaluate and best is not None and not self._again
            best = self._best = (self.rate, earned)
            converged = self._points and self._points[-1][1] <= (self.target or 0.0)
            if self._left and not converged:
                return self._begin_trial(self.rate if self._again else self.rate + 1, now)
        self.rate = best[0]
        return self._begin_period(now)

    def _earned(self) -> float:
        """The trial's reward."""
        if len(self._points) < 3:  # a loss has not come in time
            return -inf
        if self._goal is None:
            self._goal = goal(self._points[0][1], target=self.target)
        return reward(self._points, goal=self._goal)
