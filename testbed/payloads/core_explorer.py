"""Slim-DP's choice of coordinates: a core of the largest, and a random explorer of others.

S. Sun et al., "Slim-DP: a multi-agent system for communication-efficient distributed deep
learning", AAMAS 2018, section 3. Sizes are shares of the whole flat vector, which has size N.
"""

from __future__ import annotations

from decimal import ROUND_HALF_EVEN, Decimal
from math import isqrt
from typing import NamedTuple

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from testbed.payloads import Indices, Vector
from testbed.payloads.topk import largest

LOTS = 2**16
"""Number of lots that an entry draws from; large, so that few excess entries are drawn."""


class Sizes(NamedTuple):
    """The number of keys in the core, and in the explorer."""

    core: int
    explorer: int


def sizes(size: int, alpha: float, epsilon: float) -> Sizes:
    """Return the sizes for ``size`` entries: round((α - ε) N), and the rest up to round(α N).

    Products are computed in decimal, and halves are rounded to even: 0.29 of 50 is 14.5 and
    becomes 14.
    """
    share, explored = Decimal(str(alpha)), Decimal(str(epsilon))
    core = _rounded((share - explored) * size)
    return Sizes(core, _rounded(share * size) - core)


def select_core(values: Vector, count: int) -> Indices:
    """Return the ascending keys of the ``count`` entries of largest magnitude.

    Of entries with equal magnitude, the lower index is kept, including zeros: messages have the
    same size in every round.
    """
    if count == values.size:
        return np.arange(count, dtype=np.int32)
    kept = largest(values, count) if count else np.empty(0, np.int32)
    if kept.size < count:
        zeros = (values == 0).nonzero()[0][: count - kept.size].astype(np.int32)
        kept = np.sort(np.concatenate([kept, zeros]))
    return kept


def draw_explorer(core: Indices, size: int, count: int, *, rng: Generator) -> Indices:
    """Draw ``count`` keys of [0, size) without replacement, and return them in ascending order.

    No key is in the core; all others are equally likely. Independent lots draw ``count`` keys or
    slightly more, and the excess is dropped at random: every choice of ``count`` keys has the
    same probability, with few passes over [0, size).
    """
    if count == 0:
        return np.empty(0, np.int32)
    drawn = _drawn_by_lot(core, size, count, rng)
    kept = np.ones(drawn.size, np.bool_)
    kept[rng.choice(drawn.size, drawn.size - count, replace=False, shuffle=False)] = False
    return drawn[kept].astype(np.int32)


def _drawn_by_lot(core: Indices, size: int, count: int, rng: Generator) -> NDArray[np.intp]:
    """Draw at least ``count`` keys outside the core, each by an independent lot."""
    wanted = count + 4 * isqrt(count) + 4  # at least four standard deviations more
    winning = -(-wanted * LOTS // (size - core.size))
    while True:
        if winning < LOTS:
            lots = rng.integers(2**64, size=-(-size // 4), dtype=np.uint64).view(np.uint16)[:size]
            wins = lots < winning
        else:
            wins = np.ones(size, np.bool_)
        wins[core] = False
        drawn = np.flatnonzero(wins)
        if drawn.size >= count:
            return drawn


def _rounded(product: Decimal) -> int:
    return int(product.to_integral_value(ROUND_HALF_EVEN))
