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

import numpy as np
from numpy.typing import NDArray

STEPS_PER_TURN = 720
"""So many frequencies are looked at, up to that of one turn in the mean staleness."""

BISECTIONS = 50


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


def _in_phase(frequency: float, sigma: NDArray[np.int64], weights: NDArray[np.float64]) -> float:
    return float(weights @ np.cos(frequency * sigma))
