"""ADSP's search for the commit rate: rates go out, losses come in; and what a loss is worth.

    EPOCH     d ← 1; r1 ← TRIAL(1)
              while there is time for a trial: r2 ← TRIAL(d + 1); unless r2 > r1: break; d ← d + 1
              then d until the epoch ends, or the loss has risen by 30 % from one period to the next
    TRIAL(d)  a check period at the rate d; the losses at its start, middle and end earn a reward

A period begins whenever ``advance`` returns a rate. Nothing here knows of workers or of a clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Literal

import numpy as np
from pydantic import model_validator

from testbed.algorithms.base import AlgorithmConfig
from testbed.algorithms.parts.options import CommitRate, Lasting, Loss
from testbed.errors import Unfit
from testbed.values.units import Duration

FLOORS = 200
"""So many a3 are tried."""

GOAL_RATIO = 0.95
"""Rewards are for coming to the target, or to so much of a search's first loss if that is less."""

GOAL_WITHOUT_TARGET_RATIO = 0.5
"""Likewise where no target is known. It has to lie beyond what the trials themselves come to: of
two curves that have passed it, the one that falls faster seems to have passed it later."""

DIVERGENCE_RATIO = 1.3
"""A loss that grows to so much in a check period begins a new search."""


class SearchOptions(AlgorithmConfig):
    """What a scenario may say of the search.

    Attributes:
        check_period: Γ, and the length of a trial.
        epoch: from the beginning of a search to that of the next; whole check periods of it count.
        commit_rate: d, instead of a search; may be below 1.
        target_loss: L*; a search ends there, and rewards are for coming to it, or 5 % down from
            where the search began. Without it they are for half of the loss then.
        reevaluate: whether a better rate is tried again before the next.
        search_from: the rate that a search begins with: 1, or what the last search has found.
    """

    check_period: Lasting = Duration(60)
    epoch: Lasting = Duration(1200)
    commit_rate: CommitRate | None = None
    target_loss: Loss | None = None
    reevaluate: bool = False
    search_from: Literal["one", "last"] = "one"

    @model_validator(mode="after")
    def _room_for_two_trials(self) -> SearchOptions:
        if self.commit_rate is None and self.epoch < 2 * self.check_period:
            expected = f"two check periods or more, {Duration(2 * self.check_period)}: two trials"
            raise Unfit(f"an epoch of {self.epoch}", expected)
        return self

    def search(self) -> CommitRateSearch:
        """The search, at its beginning."""
        return CommitRateSearch(
            float(self.check_period),
            periods=int(self.epoch / self.check_period + 1e-9),
            target=self.target_loss,
            reevaluate=self.reevaluate,
            from_last=self.search_from == "last",
            fixed=self.commit_rate,
        )


Point = tuple[float, float]
"""Emulated seconds since the training began, and the loss of the model then."""


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
            case "middle":
                self._stage, self.due = "end", now + self.period / 2
                self._want(now)
                return None
            case "end":  # the verdict waits for the loss, but not for longer than a period
                self._stage, self.due = "verdict", now + self.period
                self._want(now)
                return None
            case "verdict":
                return self._judge(now)
            case "period":
                return self._begin_period(now)

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
        self._left -= 1
        self._stage, self.due = "period", now + self.period
        self._wanted = None
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
        """A trial is over: try another rate, or end the search."""
        earned = self._earned()
        if self._again:
            self._best, self._again = (self.rate, earned), False
        elif self._best is None:
            self._best = (self.rate, earned)
        elif earned > self._best[1]:
            self._best, self._again = (self.rate, earned), self.reevaluate
        else:
            return self._settle(now)
        if not self._left or self._converged():
            return self._settle(now)
        return self._begin_trial(self.rate if self._again else self.rate + 1, now)

    def _settle(self, now: float) -> int:
        """The search has ended: go on with the best rate."""
        assert self._best is not None
        self.rate = self._best[0]
        return self._begin_period(now)

    def _converged(self) -> bool:
        if self.target is None or not self._points:
            return False
        return self._points[-1][1] <= self.target

    def _earned(self) -> float:
        """The trial's reward; -inf if one of its losses has not come in time."""
        if len(self._points) < 3:
            return -inf
        if self._goal is None:
            first = self._points[0][1]
            ratio = GOAL_RATIO if self.target else GOAL_WITHOUT_TARGET_RATIO
            self._goal = min(ratio * first, self.target or inf)
        return reward(self._points, goal=self._goal)


def reward(points: Sequence[Point], *, goal: float) -> float:
    """What a trial was worth: 1 / the time at which its curve comes to ``goal``; larger is better.

    The curve is ℓ = 1 / (a1² t + a2) + a3. For each of 200 a3 from 0 up to the least of ``goal``
    and the losses, 1 / (ℓ - a3) = a1² t + a2 is a straight line, fitted by least squares; of those
    that rise the one with the least residual counts.

    Returns:
        -inf for a loss that does not fall, or never comes to ``goal``.
    """
    times, losses = np.array(points, np.float64).T
    least = min(goal, losses.min())
    if not least > 0:
        return -inf
    floors = np.linspace(0, least, FLOORS, endpoint=False)
    heights = 1 / (losses - floors[:, np.newaxis])  # a row for each a3
    centred, means = times - times.mean(), heights.mean(axis=1)
    slopes = (heights - heights[:, :1]) @ centred / (centred @ centred)  # 0 for equal losses
    offsets = means - slopes * times.mean()
    misses = heights - means[:, np.newaxis] - slopes[:, np.newaxis] * centred
    residuals = np.where(slopes > 0, (misses**2).sum(axis=1), inf)
    chosen = residuals.argmin()
    remaining = 1 / (goal - floors[chosen]) - offsets[chosen]
    if not (residuals[chosen] < inf and remaining > 0):
        return -inf
    return float(slopes[chosen] / remaining)
