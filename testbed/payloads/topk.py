"""Sparsification: the selection of gradient entries to send.

A gradient is split into parts (the whole vector, or one part per tensor), and a fixed number of
entries of each part is kept: the largest by magnitude, or a random choice. Three rules hold:

- Of entries with equal magnitude, the lower index is kept, so that runs are reproducible.
- An entry that is exactly zero is never sent, even if fewer than the quota remain.
- An entry that is NaN or infinite counts as the largest: it is sent, and the server refuses it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from math import isqrt
from typing import Literal

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from testbed.payloads import Indices, Sparse, Vector

_MAGNITUDE_BITS = np.int32(0x7FFFFFFF)
_SAMPLE_STRIDE = 61  # prime, to avoid aliasing with the rows of a matrix
_WORTH_SAMPLING = 4096
_EIGHT_TRUE = np.uint64(0x0101010101010101)
_LEAST = np.float32(np.finfo(np.float32).smallest_subnormal)


@dataclass(frozen=True)
class Quota:
    """The number of entries to keep in one part of the flat vector."""

    part: slice
    count: int


Scope = Literal["global", "per_tensor"]
"""Whether entries are selected from the whole model, or from each tensor separately."""


def parts_of(sizes: Sequence[int], scope: Scope) -> Sequence[int]:
    """Return the sizes of the parts to select from, for tensors of these sizes."""
    return sizes if scope == "per_tensor" else (sum(sizes),)


def quotas(sizes: Iterable[int], ratio: float) -> tuple[Quota, ...]:
    """Return the quotas of adjacent parts: max(1, floor(ratio * size)) for each.

    The product is computed in decimal: 0.29 of 100 is 29, where floats would give 28.
    """
    kept, start = [], 0
    for size in sizes:
        count = max(1, int(Decimal(str(ratio)) * size))
        kept.append(Quota(slice(start, start + size), count))
        start += size
    return tuple(kept)


def sparsify(
    gradient: Vector, quotas: Iterable[Quota], *, choose: Callable[[Vector, int], Indices]
) -> Sparse:
    """Return the entries that ``choose(part, count)`` selects from every part, see ``quotas``.

    ``choose`` is ``largest`` or ``drawn``, and returns ascending indices within its part.
    """
    kept = [quota.part.start + choose(gradient[quota.part], quota.count) for quota in quotas]
    indices = np.concatenate(kept)
    return Sparse(indices, gradient[indices])


def largest(values: Vector, count: int) -> Indices:
    """Return the ascending indices of the ``count`` entries of largest magnitude, without zeros.

    The cost is a few passes over ``values``: a sample gives a magnitude that slightly more than
    ``count`` entries reach, and only those entries are ranked. The result is exact.
    """
    if count == 1:
        first = int(_magnitudes(values).argmax())
        return np.array([first] if values[first] != 0 else [], np.int32)
    candidates = None
    if values.size >= _WORTH_SAMPLING:
        candidates = _reaching(values, _lower_bound(values, count))
    if candidates is None or candidates.size < count:
        candidates = values.nonzero()[0]
    if candidates.size > count:
        candidates = _exactly(candidates, _magnitudes(values[candidates]), count=count)
    return candidates.astype(np.int32)


def drawn(values: Vector, count: int, *, rng: Generator) -> Indices:
    """Draw ``count`` entries without replacement; return their ascending indices, without zeros."""
    if not np.isfinite(values).all():
        return largest(values, count)  # a draw might miss entries that the server must refuse
    indices = np.sort(rng.choice(values.size, count, replace=False, shuffle=False))
    return np.compress(values[indices] != 0, indices).astype(np.int32)


def _magnitudes(values: Vector) -> NDArray[np.int32]:
    """Return integers that compare like the magnitudes: a float's bits without its sign.

    NaN ranks above infinity.
    """
    return values.view(np.int32) & _MAGNITUDE_BITS


def _lower_bound(values: Vector, count: int) -> np.float32:
    """Estimate a magnitude above zero that at least ``count`` entries most likely reach."""
    sample = _magnitudes(values[::_SAMPLE_STRIDE])
    expected = count // _SAMPLE_STRIDE
    rank = expected + 3 * isqrt(expected) + 4  # three standard deviations of safety margin
    if rank >= sample.size:
        return _LEAST
    sample.partition(sample.size - rank)
    return max(_LEAST, sample.view(np.float32)[sample.size - rank])


def _reaching(values: Vector, bound: np.float32) -> NDArray[np.intp]:
    """Return the ascending indices of the entries with a magnitude of at least ``bound``, or NaN.

    It reads the gradient twice and writes nothing of its size; as only few entries match, it scans
    eight entries at a time.
    """
    below = np.ones(-(-values.size // 8) * 8, np.bool_)
    within = below[: values.size]
    np.less(values, bound, out=within)
    within &= np.greater(values, -bound)
    eights = below.view(np.uint64)
    hit = (eights != _EIGHT_TRUE).nonzero()[0]
    entries = np.logical_not(eights[hit].view(np.bool_)).nonzero()[0]
    reaching: NDArray[np.intp] = (hit[entries >> 3] << 3) + (entries & 7)
    return reaching


def _exactly(
    candidates: NDArray[np.intp], magnitudes: NDArray[np.int32], *, count: int
) -> NDArray[np.intp]:
    """Return the ``count`` largest of more than ``count`` candidates; ties go to lower indices."""
    ranked = magnitudes.copy()
    ranked.partition(magnitudes.size - count)
    threshold = ranked[magnitudes.size - count]
    keep = magnitudes > threshold
    tied = (magnitudes == threshold).nonzero()[0]
    keep[tied[: count - np.count_nonzero(keep)]] = True
    exact: NDArray[np.intp] = candidates[keep]
    return exact
