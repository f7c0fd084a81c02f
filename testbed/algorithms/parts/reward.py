"""What a trial of a commit rate was worth, by the losses in it (ADSP, section 4.2)."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

import numpy as np

FLOORS = 200
"""So many a3 are tried."""

Point = tuple[float, float]
"""Emulated seconds since the training began, and the loss of the model then."""

GOAL_RATIO = 0.95
"""Rewards are for coming to the target, or to so much of a search's first loss if that is less."""

GOAL_WITHOUT_TARGET_RATIO = 0.5
"""Likewise where no target is known. It has to lie beyond what the trials themselves come to: of
two curves that have passed it, the one that falls faster seems to have passed it later."""


def goal(loss: float, *, target: float | None) -> float:
    """l*: what a search that began at ``loss`` is to come to."""
    if target is None:
        return GOAL_WITHOUT_TARGET_RATIO * loss
    return min(target, GOAL_RATIO * loss)


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
