"""The stability limit of an asynchronous training, from the staleness of its updates.

Along one direction of curvature λ around a minimum, a push that is applied at version v and was
computed s versions before moves the model by -η λ θ(v - s) / max(1, s). Over many updates

    dθ/dv = -η λ E[θ(v - s) / max(1, s)],

which is the equation of a feedback loop with delay. At the stability limit θ = exp(iωv), so that

    E[cos(ωs) / max(1, s)] = 0    and    η λ E[sin(ωs) / max(1, s)] = ω

for the smallest such ω. With constant s, this is the textbook's phase of a quarter turn: ω s and
η λ are π / 2. It holds for updates that are damped as a whole (ASGD); if every entry has its own
staleness (AdaComp), it only gives the order of magnitude.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, nan
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pandas as pd

STEPS_PER_TURN = 720
"""Number of frequencies to try, up to that of one turn in the mean staleness."""

BISECTIONS = 50

ASIDE = 5
"""A maximum is the highest among this many evaluations on each side, to ignore noise."""


@dataclass(frozen=True)
class StabilityLimit:
    """The oscillation with constant amplitude."""

    period: float  # updates from one maximum of the displacement to the next
    gain: float  # learning rate times curvature, above which the oscillation grows

    @property
    def loss_period(self) -> float:
        """Updates between two maxima of the loss, which is symmetric around a minimum."""
        return self.period / 2


def stability_limit(staleness: NDArray[np.int64]) -> StabilityLimit | None:
    """Return the stability limit of a training with such updates.

    Args:
        staleness: of every update, shape (n,).

    Returns:
        None if there is no such frequency up to one turn in the mean staleness: fresh updates
        have so much weight that their part is always in phase.
    """
    sigma, counts = np.unique(staleness, return_counts=True)
    weights = counts / counts.sum() / np.maximum(1, sigma)
    mean = float((sigma * counts).sum() / counts.sum())
    if not mean:
        return None
    low = high = 0.0
    for step in range(1, STEPS_PER_TURN + 1):
        low, high = high, 2 * np.pi * step / STEPS_PER_TURN / mean
        if _in_phase(high, sigma, weights) <= 0:
            break
    else:
        return None
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if _in_phase(middle, sigma, weights) > 0 else (low, middle)
    return StabilityLimit(2 * np.pi / high, high / float(weights @ np.sin(high * sigma)))


def loss_period(evaluations: pd.DataFrame, *, first: int) -> float:
    """Return updates between maxima of the loss, from update ``first``; see ``mean_distance``."""
    seen = evaluations[evaluations["version"] >= first]
    return mean_distance(seen["version"].to_numpy(), seen["loss"].to_numpy())


def verge_period(updates: pd.DataFrame, *, first: int) -> float:
    """Return the loss period at the stability limit, by the staleness from update ``first``.

    Infinite if such updates do not oscillate, NaN if there are none.
    """
    staleness = updates.loc[updates["version_applied"] >= first, "staleness"].to_numpy()
    if not len(staleness):
        return nan
    found = stability_limit(staleness)
    return inf if found is None else found.loss_period


def mean_distance(versions: NDArray[np.int64], losses: NDArray[np.float64]) -> float:
    """Return the mean number of updates between maxima of the loss; NaN without two maxima."""
    maxima = versions[peaks(losses)]
    return float(np.diff(maxima).mean()) if len(maxima) > 1 else nan


def peaks(losses: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the indices of local maxima of the smoothed loss."""
    if len(losses) <= 2 * ASIDE:
        return np.empty(0, np.int64)
    smooth = np.convolve(losses, np.full(ASIDE, 1 / ASIDE), "same")
    return np.array(
        [
            i
            for i in range(ASIDE, len(smooth) - ASIDE)
            if i == i - ASIDE + int(smooth[i - ASIDE : i + ASIDE + 1].argmax())
        ],
        dtype=np.int64,
    )


def _in_phase(frequency: float, sigma: NDArray[np.int64], weights: NDArray[np.float64]) -> float:
    return float(weights @ np.cos(frequency * sigma))
