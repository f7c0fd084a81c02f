"""Slim-DP's choice of coordinates: a core of the largest, and an explorer drawn from the others.

S. Sun et al., "Slim-DP: a multi-agent system for communication-efficient distributed deep
learning", AAMAS 2018, section 3. Sizes are shares of the whole flat vector, of which N is the size.
"""

from __future__ import annotations

from decimal import ROUND_HALF_EVEN, Decimal
from math import isqrt
from typing import NamedTuple

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from testbed.compress.topk import largest
from testbed.payloads import Indices, Vector

LOTS = 2**16
"""An entry draws one of them; so many that what is too much is little."""


class Sizes(NamedTuple):
    """How many keys are in the core, and how many in the explorer."""

    core: int
    explorer: int


def sizes(size: int, alpha: float, epsilon: float) -> Sizes:
    """Of a vector of ``size`` entries: round((α - ε) N), and what is missing to round(α N).

    Products are taken in decimal, as written, and halves go to the even neighbour: 0.29 of 50 is
    14.5 and becomes 14.
    """
    share, explored = Decimal(str(alpha)), Decimal(str(epsilon))
    core = _rounded((share - explored) * size)
    return Sizes(core, _rounded(share * size) - core)


def select_core(values: Vector, count: int) -> Indices:
    """Ascending keys of the ``count`` entries of largest magnitude.

    Of entries with the same magnitude the one with the lower index is kept, zeros included: what is
    sent has the same size in every round.
    """
    if count == values.size:
        return np.arange(count, dtype=np.int32)
    kept = largest(values, count) if count else np.empty(0, np.int32)
    if kept.size < count:
        zeros = (values == 0).nonzero()[0][: count - kept.size].astype(np.int32)
        kept = np.sort(np.concatenate([kept, zeros]))
    return kept


def draw_explorer(core: Indices, size: int, count: int, *, rng: Generator) -> Indices:
    """Ascending keys of ``count`` entries out of [0, size), drawn without replacement.

    None of them is in the core, and each of the others is as likely as any. Those that are drawn
    by lot are as many or a few more, and of them as many as are too many are let go: what is left
    is any choice of ``count`` with the same probability, and takes few passes over [0, size).
    """
    if count == 0:
        return np.empty(0, np.int32)
    drawn = _drawn_by_lot(core, size, count, rng)
    kept = np.ones(drawn.size, np.bool_)
    kept[rng.choice(drawn.size, drawn.size - count, replace=False, shuffle=False)] = False
    return drawn[kept].astype(np.int32)


def _drawn_by_lot(core: Indices, size: int, count: int, rng: Generator) -> NDArray[np.intp]:
    """At least ``count`` keys that are not in the core, each drawn by a lot of its own."""
    wanted = count + 4 * isqrt(count) + 4  # four standard deviations more, or somewhat above that
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
