"""ADSP's search for the commit rate: its options, and the reward of a trial (section 4.2)."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Literal

import numpy as np
from pydantic import model_validator

from testbed.algorithms.base import AlgorithmConfig
from testbed.algorithms.parts.options import CommitRate, Loss, PositiveDuration
from testbed.errors import InvalidValue
from testbed.values.units import Duration

FLOORS = 200
"""Number of a3 values to try."""

Point = tuple[float, float]
"""Emulated seconds since training began, and the loss of the model at that time."""

GOAL_RATIO = 0.95
"""The goal is the target, or this fraction of a search's first loss if that is lower."""

GOAL_WITHOUT_TARGET_RATIO = 0.5
"""The fraction without a known target. The goal must lie below the losses that trials reach: of two
curves that have passed the goal, the one that falls faster seems to have passed it later."""


class SearchOptions(AlgorithmConfig):
    """A scenario's options for the search.

    Attributes:
        check_period: Γ, also the length of a trial.
        epoch: from the start of one search to the next; only whole check periods count.
        commit_rate: d, instead of a search; may be below 1.
        target_loss: L*; a search ends there, and the goal of rewards is L* or 5 % below the first
            loss of the search. Without it, the goal is half of the first loss.
        reevaluate: whether a better rate is tried again before the next.
        search_from: the rate that a search starts with: 1, or the result of the last search.
    """

    check_period: PositiveDuration = Duration(60)
    epoch: PositiveDuration = Duration(1200)
    commit_rate: CommitRate | None = None
    target_loss: Loss | None = None
    reevaluate: bool = False
    search_from: Literal["one", "last"] = "one"

    @model_validator(mode="after")
    def _room_for_two_trials(self) -> SearchOptions:
        if self.commit_rate is None and self.epoch < 2 * self.check_period:
            expected = f"at least two check periods, {Duration(2 * self.check_period)}: two trials"
            raise InvalidValue(f"an epoch of {self.epoch}", expected)
        return self


def goal(loss: float, *, target: float | None) -> float:
    """Return l*, the goal of a search that began at ``loss``."""
    if target is None:
        return GOAL_WITHOUT_TARGET_RATIO * loss
    return min(target, GOAL_RATIO * loss)


def reward(points: Sequence[Point], *, goal: float) -> float:
    """Return a trial's reward: 1 / the time at which its curve reaches ``goal``; larger is better.

    The curve is ℓ = 1 / (a1² t + a2) + a3. For each of 200 values of a3 from 0 up to the minimum of
    ``goal`` and the losses, 1 / (ℓ - a3) = a1² t + a2 is a straight line, fitted by least squares;
    the rising line with the smallest residual is used.

    Returns:
        -inf if the loss does not fall, or never reaches ``goal``.
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
