"""All entries of the vector with eight bits each, and a scale for every bucket."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from testbed.payloads.base import Payload, Vector

Levels = NDArray[np.int8]

LEAST_LEVEL = -127
"""A level has a sign and seven bits; -128 has no counterpart."""


@dataclass(frozen=True, eq=False)
class Quantized(Payload):
    """All N entries as levels of their buckets' scales; ``qsgd`` defines their meaning.

    Both ends know how the vector is cut into buckets; the decoder must check that there is a scale
    for each bucket.

    Attributes:
        scales: float32, one per bucket, not negative.
        levels: int8, shape (N,), each in [-127, 127].
    """

    scales: Vector
    levels: Levels

    NUMBER = 4
    TYPES = ("<f4", "|i1")

    def flaw(self, size: int) -> str:
        if self.entries != size:
            return f"{self.entries} levels for a model of {size}"
        if not 1 <= self.scales.size <= size:
            return f"{self.scales.size} scales for {size} levels"
        if (self.scales < 0).any():
            return "a scale is negative"
        if (self.levels < LEAST_LEVEL).any():
            return f"a level is below {LEAST_LEVEL}"
        return ""

    @property
    def finite(self) -> bool:
        return bool(np.isfinite(self.scales).all())
