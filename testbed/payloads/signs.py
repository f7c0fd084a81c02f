"""The signs of all entries of a vector, one bit each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from testbed.payloads.base import Indices, Payload, Vector


@dataclass(frozen=True, eq=False)
class Signs(Payload):
    """The signs of all N entries; zero counts as positive.

    Attributes:
        count: int32, shape (1,): N.
        bits: uint8, shape (⌈N/8⌉,): a 1 for each negative entry, the first in the highest bit;
            unused bits are 0.
    """

    count: Indices
    bits: NDArray[np.uint8]

    NUMBER = 5
    TYPES = ("<i4", "|u1")

    @classmethod
    def of_values(cls, values: Vector) -> Self:
        """Take the signs of a vector without NaN."""
        return cls(np.array([values.size], np.int32), np.packbits(values < 0))

    def values(self) -> Vector:
        """Return 1 and -1, float32, shape (N,)."""
        negative = np.unpackbits(self.bits, count=self.entries)
        return np.float32(1) - np.float32(2) * negative.astype(np.float32)

    @property
    def entries(self) -> int:
        return int(self.count[0]) if self.count.size else 0

    def flaw(self, size: int) -> str:
        if self.count.size != 1 or self.entries != size:
            return f"the signs of {self.entries} values for a model of {size}"
        if self.bits.size != -(-size // 8):
            return f"{self.bits.size} bytes with the signs of {size} values"
        if size % 8 and self.bits[-1] & (0xFF >> size % 8):
            return "an unused bit is set"
        return ""

    @property
    def finite(self) -> bool:
        return True
