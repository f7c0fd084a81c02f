"""The distributions of jitter for netem: tables of equally likely deviations. Pure.

Without a table netem's jitter is half the width of a uniform distribution; with one it is the
standard deviation of any distribution. The tables are computed from the inverse distribution
functions, not read from files of a tool that may not be installed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from math import sqrt
from statistics import NormalDist

from testbed.values.topology import Distribution

SCALE = 8192
"""One standard deviation in netem's units (NETEM_DIST_SCALE)."""

ENTRIES = 4096
LARGEST = 32767 / SCALE
"""Deviations are 16-bit numbers: larger ones are truncated to this."""

PARETO_SHAPE = 3.0
PARETO_SHARE = 0.75
ROUNDS = 50


@cache
def table(distribution: Distribution) -> tuple[int, ...]:
    """Return deviations in units of SCALE with mean 0 and standard deviation 1, in rising order."""
    import numpy as np  # later, as few agents need it

    probabilities = (np.arange(ENTRIES) + 0.5) / ENTRIES
    values = np.array([_INVERSES[distribution](probability) for probability in probabilities])
    # Truncating a long tail changes mean and deviation, so correct them, and truncate again.
    for _ in range(ROUNDS):
        values = np.clip((values - values.mean()) / values.std(), -LARGEST, LARGEST)
    return tuple(int(value) for value in np.rint(values * SCALE))


def _uniform(probability: float) -> float:
    return sqrt(3) * (2 * probability - 1)


def _pareto(probability: float) -> float:
    """Return the quantile; mean 1.5, variance 0.75 before standardising, as in iproute2's table."""
    return float(((1 - probability) ** (-1 / PARETO_SHAPE) - 1.5) / sqrt(0.75))


def _paretonormal(probability: float) -> float:
    normal = NormalDist().inv_cdf(probability)
    return PARETO_SHARE * _pareto(probability) + (1 - PARETO_SHARE) * normal


_INVERSES: Mapping[Distribution, Callable[[float], float]] = {
    "normal": NormalDist().inv_cdf,
    "uniform": _uniform,
    "pareto": _pareto,
    "paretonormal": _paretonormal,
}
