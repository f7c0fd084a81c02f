"""The reward of a commit rate's trial, from the losses in it (ADSP, section 4.2)."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

import numpy as np

FLOORS = 200
"""Number of a3 values to try."""

Point = tuple[float, float]
"""Emulated seconds since training began, and the loss of the model at that time."""

GOAL_RATIO = 0.95
"""The goal is the target, or this fraction of a search's first loss if that is lower."""

GOAL_WITHOUT_TARGET_RATIO = 0.5
"""The fraction without a known target. The goal must lie below the losses that trials reach: of two
curves that have passed the goal, the one that falls faster seems to have passed it later."""


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
