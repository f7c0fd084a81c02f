"""QSGD: a vector with eight bits per entry, rounded at random without bias.

D. Alistarh, D. Grubic, J. Li, R. Tomioka, M. Vojnovic, "QSGD: communication-efficient SGD via
gradient quantization and encoding", NIPS 2017, section 3.1, with s = 127 levels and without
Elias coding. A vector is cut into buckets; for each bucket:

    A = max |v|  (or the l2 norm, as in the paper's theory)
    r = |x| / A s,  l = floor(r),  q = l + 1 with probability r - l, else l
    sent: A as float32, sign(x) q as int8        decoded: sign(x) q A / s

So E[decoded] = x, and |decoded - x| <= A / s. A bucket of zeros has A = 0 and stays zero.
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
"""Buckets processed at a time, so that intermediate arrays stay in the caches."""

Norm = Literal["max", "l2"]


@dataclass(frozen=True, eq=False)
class Buckets:
    """The buckets of a flat vector.

    Attributes:
        bounds: the start of each bucket, followed by the end of the last bucket.
    """

    bounds: NDArray[np.intp]

    @classmethod
    def of(cls, sizes: Iterable[int], length: int) -> Buckets:
        """Cut adjacent tensors into buckets of ``length`` entries; a tensor's last has the rest."""
        starts: list[NDArray[np.intp]] = []
        end = 0
        for size in sizes:
            starts.append(np.arange(end, end + size, length))
            end += size
        return cls(np.concatenate([*starts, np.array([end])]).astype(np.intp))

    @property
    def count(self) -> int:
        """Number of buckets."""
        return self.bounds.size - 1

    @property
    def size(self) -> int:
        """Number of entries of the vector."""
        return int(self.bounds[-1])


def quantise(vector: Vector, buckets: Buckets, *, rng: Generator, norm: Norm = "max") -> Quantized:
    """Quantise a vector to levels, each rounded up or down at random."""
    scales = np.empty(buckets.count, np.float32)
    levels = np.empty(buckets.size, np.int8)
    for first in range(0, buckets.count, BLOCK):
        bounds = buckets.bounds[first : first + BLOCK + 1]
        part = slice(bounds[0], bounds[-1])
        values = vector[part]
        scale = _scales(values, bounds[:-1] - bounds[0], norm)
        scales[first : first + BLOCK] = scale
        divisors = np.where(scale > 0, scale, np.float32(1))
        with np.errstate(invalid="ignore"):  # a scale that is not finite: the server refuses it
            exact = np.abs(values) / np.repeat(divisors, np.diff(bounds)) * LEVELS
            lower = np.floor(exact)
            lower += rng.random(exact.size, np.float32) < exact - lower
        np.fmin(lower, LEVELS, out=lower)  # a norm that was rounded down may be less than an entry
        levels[part] = np.copysign(lower, values)
    return Quantized(scales, levels)


def decoded(quantized: Quantized, buckets: Buckets) -> Iterator[tuple[slice, Vector]]:
    """Decode a vector part by part: yield each part's slice and its float32 values.

    A caller that only adds it to another vector needs no memory of the vector's size. For the
    kernel to clear that much memory each time takes several times as long as decoding.
    """
    units = quantized.scales / LEVELS
    for first in range(0, buckets.count, BLOCK):
        bounds = buckets.bounds[first : first + BLOCK + 1]
        part = slice(bounds[0], bounds[-1])
        values = np.repeat(units[first : first + BLOCK], np.diff(bounds))
        values *= quantized.levels[part]
        yield part, values


def dequantise(quantized: Quantized, buckets: Buckets, *, out: Vector | None = None) -> Vector:
    """Decode a vector to float32, into ``out`` if given."""
    vector = np.empty(buckets.size, np.float32) if out is None else out
    for part, values in decoded(quantized, buckets):
        vector[part] = values
    return vector


def _scales(values: Vector, starts: NDArray[np.intp], norm: Norm) -> Vector:
    """Return A of every bucket."""
    if norm == "max":
        largest: Vector = np.maximum.reduceat(np.abs(values), starts)
        return largest
    squares = np.add.reduceat(np.square(values, dtype=np.float64), starts)
    return np.sqrt(squares).astype(np.float32)
