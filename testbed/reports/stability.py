"""Where an asynchronous training begins to oscillate, from the staleness of its updates.

Along one direction of curvature λ around a minimum, a push that is applied at version v and was
computed s versions before moves the model by -η λ θ(v - s) / max(1, s). Over many updates

    dθ/dv = -η λ E[θ(v - s) / max(1, s)],

which is the equation of a feedback with a delay. On the verge of instability θ = exp(iωv), so that

    E[cos(ωs) / max(1, s)] = 0    and    η λ E[sin(ωs) / max(1, s)] = ω

for the smallest such ω. With the same s always that is the textbook's quarter of a turn: ω s and
η λ are π / 2. It holds for updates that are damped as a whole (ASGD); where every entry has its own
staleness (AdaComp) it says no more than the order of magnitude.
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
"""So many frequencies are looked at, up to that of one turn in the mean staleness."""

BISECTIONS = 50

ASIDE = 5
"""A maximum is the highest of so many evaluations on each side, as a few images leave noise."""


@dataclass(frozen=True)
class Verge:
    """The oscillation that neither grows nor dies down.

    Attributes:
        period: updates from one maximum of the displacement to the next.
        gain: learning rate times curvature, beyond which the oscillation grows.
    """

    period: float
    gain: float

    @property
    def loss_period(self) -> float:
        """Updates between two maxima of the loss, which is the same on both sides of a minimum."""
        return self.period / 2


def verge(staleness: NDArray[np.int64]) -> Verge | None:
    """The verge of instability of a training with such updates.

    Args:
        staleness: of every update, shape (n,).

    Returns:
        None where there is no such frequency up to one turn in the mean staleness: fresh updates
        weigh so much that their part is always in phase.
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
    return Verge(2 * np.pi / high, high / float(weights @ np.sin(high * sigma)))


def loss_period(evaluations: pd.DataFrame, *, first: int) -> float:
    """Updates between two maxima of the loss, from an update on; see ``mean_distance``."""
    seen = evaluations[~evaluations["final"] & (evaluations["version"] >= first)]
    return mean_distance(seen["version"].to_numpy(), seen["loss"].to_numpy())


def verge_period(updates: pd.DataFrame, *, first: int) -> float:
    """The same on the verge of instability, by the staleness of the updates from then on.

    Infinite where such updates do not swing, NaN where there are none.
    """
    staleness = updates.loc[updates["version_applied"] >= first, "staleness"].to_numpy()
    if not len(staleness):
        return nan
    found = verge(staleness)
    return inf if found is None else found.loss_period


def mean_distance(versions: NDArray[np.int64], losses: NDArray[np.float64]) -> float:
    """Updates between two maxima of the loss, on the mean; NaN where there are not two.

    Args:
        versions: of the evaluations, ascending, shape (n,).
        losses: what they found, shape (n,).
    """
    maxima = versions[peaks(losses)]
    return float(np.diff(maxima).mean()) if len(maxima) > 1 else nan


def peaks(losses: NDArray[np.float64]) -> NDArray[np.int64]:
    """Where the loss is highest among its neighbours, once noise is smoothed away."""
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
