"""Slim-DP's choice of coordinates: a core of the largest, and an explorer drawn from the others.

S. Sun et al., "Slim-DP: a multi-agent system for communication-efficient distributed deep
learning", AAMAS 2018, section 3. Sizes are shares of the whole flat vector, of which N is the size.
"""

from __future__ import annotations

from decimal import ROUND_HALF_EVEN, Decimal
from typing import NamedTuple

import numpy as np
from numpy.random import Generator

from testbed.compress.topk import largest
from testbed.payloads import Indices, Vector


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

    None of them is in the core, and each of the others is as likely as any.
    """
    if count == 0:
        return np.empty(0, np.int32)
    others = np.ones(size, np.bool_)
    others[core] = False
    drawn = np.zeros(size - core.size, np.bool_)
    drawn[rng.choice(drawn.size, count, replace=False, shuffle=False)] = True
    others[others] = drawn
    return np.flatnonzero(others).astype(np.int32)


def _rounded(product: Decimal) -> int:
    return int(product.to_integral_value(ROUND_HALF_EVEN))
