"""QSGD: a vector in eight bits an entry, rounded at random so that the mean is right.

D. Alistarh, D. Grubic, J. Li, R. Tomioka, M. Vojnovic, "QSGD: communication-efficient SGD via
gradient quantization and encoding", NIPS 2017, section 3.1, with s = 127 levels and without its
Elias coding. A vector is cut into buckets, and of each bucket:

    A = max |v|  (or the l2 norm, as in the paper's theory)
    r = |x| / A s,  l = floor(r),  q = l + 1 with probability r - l, else l
    sent: A as float32, sign(x) q as int8        decoded: sign(x) q A / s

So E[decoded] = x, and |decoded - x| <= A / s. A bucket of zeros has A = 0 and stays zeros.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from testbed.payloads import Quantized, Vector

LEVELS = np.float32(127)
"""s: a sign and seven bits."""

BLOCK = 128
"""Buckets that are worked on at a time, so that what is made on the way stays in the caches."""

Norm = Literal["max", "l2"]


@dataclass(frozen=True, eq=False)
class Buckets:
    """How a flat vector is cut.

    Attributes:
        bounds: where each bucket begins, and behind them where the last one ends.
    """

    bounds: NDArray[np.intp]

    @classmethod
    def of(cls, sizes: Iterable[int], length: int) -> Buckets:
        """Those of adjacent tensors: ``length`` entries each, a tensor's last one what is left."""
        starts: list[NDArray[np.intp]] = []
        end = 0
        for size in sizes:
            starts.append(np.arange(end, end + size, length))
            end += size
        return cls(np.concatenate([*starts, np.array([end])]).astype(np.intp))

    @property
    def count(self) -> int:
        """How many there are."""
        return self.bounds.size - 1

    @property
    def size(self) -> int:
        """Entries of the vector."""
        return int(self.bounds[-1])


def quantise(vector: Vector, buckets: Buckets, *, rng: Generator, norm: Norm = "max") -> Quantized:
    """The vector in levels, each rounded up or down at random."""
    scales = np.empty(buckets.count, np.float32)
    levels = np.empty(buckets.size, np.int8)
    for first in range(0, buckets.count, BLOCK):
        bounds = buckets.bounds[first : first + BLOCK + 1]
        part = slice(bounds[0], bounds[-1])
        values = vector[part]
        scale = _scales(values, bounds[:-1] - bounds[0], norm)
        scales[first : first + BLOCK] = scale
        divisors = np.where(scale > 0, scale, np.float32(1))
        with np.errstate(invalid="ignore"):  # of a scale that is not finite, which is seen in it
            exact = np.abs(values) / np.repeat(divisors, np.diff(bounds)) * LEVELS
            lower = np.floor(exact)
            lower += rng.random(exact.size, np.float32) < exact - lower
        np.fmin(lower, LEVELS, out=lower)  # a norm rounded down may be less than an entry
        levels[part] = np.copysign(lower, values)
    return Quantized(scales, levels)


def decoded(quantized: Quantized, buckets: Buckets) -> Iterator[tuple[slice, Vector]]:
    """The vector that was sent, in float32, part by part: which entries, and their values.

    Who only adds it to another needs no memory as large as the vector. To have the kernel clear
    that much anew each time takes several times as long as to decode it.
    """
    units = quantized.scales / LEVELS
    for first in range(0, buckets.count, BLOCK):
        bounds = buckets.bounds[first : first + BLOCK + 1]
        part = slice(bounds[0], bounds[-1])
        values = np.repeat(units[first : first + BLOCK], np.diff(bounds))
        values *= quantized.levels[part]
        yield part, values


def dequantise(quantized: Quantized, buckets: Buckets, *, out: Vector | None = None) -> Vector:
    """The vector that was sent, in float32; where there is an ``out``, it is written there."""
    vector = np.empty(buckets.size, np.float32) if out is None else out
    for part, values in decoded(quantized, buckets):
        vector[part] = values
    return vector


def _scales(values: Vector, starts: NDArray[np.intp], norm: Norm) -> Vector:
    """A of every bucket."""
    if norm == "max":
        largest: Vector = np.maximum.reduceat(np.abs(values), starts)
        return largest
    squares = np.add.reduceat(np.square(values, dtype=np.float64), starts)
    return np.sqrt(squares).astype(np.float32)
