"""ADSP's search for the commit rate: it outputs rates, and takes in losses.

    EPOCH     d ← 1; r1 ← TRIAL(1)
              while time remains for a trial: r2 ← TRIAL(d + 1); unless r2 > r1: break; d ← d + 1
              then keep d until the epoch ends, or the loss rises by 30 % between two periods
    TRIAL(d)  a check period at rate d; the losses at its start, middle and end give its reward

A period begins when ``advance`` returns a rate. This module knows neither workers nor clock.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from typing import Literal

from testbed.algorithms.parts.reward import Point, SearchOptions, goal, reward

DIVERGENCE_RATIO = 1.3
"""A loss that grows by this factor in a check period starts a new search."""


@dataclass
class CommitRateSearch:
    """The commit rate in force, one check period after the other.

    Attributes:
        rate: d, in force.
        due: when to call ``advance`` next.
    """

    options: SearchOptions
    rate: int = 1
    due: float = 0.0
    _stage: Literal["epoch", "middle", "end", "verdict", "period"] = "epoch"
    _left: int = 0  # periods of the epoch not yet begun
    _goal: float | None = None  # l*, one per search
    _best: tuple[int, float] | None = None  # rate and reward of the best trial
    _again: bool = False  # whether this trial repeats the best rate
    _points: list[Point] = field(default_factory=list)  # of the trial, or of the last checkpoint
    _wanted: float | None = None  # since when a loss is wanted
    _last: Point | None = None  # last measurement, wanted or not

    @property
    def _period(self) -> float:
        return float(self.options.check_period)

    def wants_loss(self) -> bool:
        """Return whether the loss of the current model is wanted."""
        return self._wanted is not None

    def measured(self, time: float, loss: float) -> None:
        """Receive the loss of the model as of ``time``."""
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
        """Advance at ``due``; return the rate if a period begins, else None."""
        if self.options.commit_rate is not None:
            self.due = now + self._period
            return self.options.commit_rate
        rate = self._advance(now)
        while self.due <= now:  # the wanted loss is already known
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
                self._stage, self.due = "end", now + self._period / 2
            case "end":  # wait for the loss, but at most one period
                self._stage, self.due = "verdict", now + self._period
        self._want(now)
        return None

    def _begin_epoch(self, now: float) -> int:
        self._left = int(self.options.epoch / self.options.check_period + 1e-9)
        self._best, self._again, self._goal = None, False, None
        return self._begin_trial(self.rate if self.options.search_from == "last" else 1, now)

    def _begin_trial(self, rate: int, now: float) -> int:
        """Begin a period at ``rate`` with losses as points of its curve."""
        self.rate, self._left = rate, self._left - 1
        self._stage, self.due = "middle", now + self._period / 2
        self._points, self._wanted = self._recent(now), None
        if not self._points:
            self._want(now)
        return rate

    def _begin_period(self, now: float) -> int:
        """Begin a period at the rate found, or the first period of the next epoch."""
        if not self._left:
            return self._begin_epoch(now)
        self._left, self._wanted = self._left - 1, None
        self._stage, self.due = "period", now + self._period
        if not self._recent(now):
            self._want(now)
        return self.rate

    def _want(self, now: float) -> None:
        """Request the loss of the current model, unless it was just measured."""
        self._wanted = now
        if self._last is not None and self._last[0] >= now:
            self.measured(*self._last)

    def _recent(self, now: float) -> list[Point]:
        """Return the last loss, if it was measured at the end of the last period."""
        return [point for point in self._points[-1:] if point[0] > now - self._period / 2]

    def _judge(self, now: float) -> int:
        """End a trial: try another rate, or end the search and continue with the best rate."""
        best, earned = self._best, self._earned()
        if best is None or self._again or earned > best[1]:
            self._again = self.options.reevaluate and best is not None and not self._again
            best = self._best = (self.rate, earned)
            converged = self._points and self._points[-1][1] <= (self.options.target_loss or 0.0)
            if self._left and not converged:
                return self._begin_trial(self.rate if self._again else self.rate + 1, now)
        self.rate = best[0]
        return self._begin_period(now)

    def _earned(self) -> float:
        """Return the trial's reward."""
        if len(self._points) < 3:  # a loss did not arrive in time
            return -inf
        if self._goal is None:
            self._goal = goal(self._points[0][1], target=self.options.target_loss)
        return reward(self._points, goal=self._goal)
