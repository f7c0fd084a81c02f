"""All entries of the vector, or some entries, each with its index."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from testbed.payloads.base import Indices, Packable, Vector, ascending


@dataclass(frozen=True, eq=False)
class Sparse(Packable):
    """Some entries; all others are zero (in an update) or unchanged (in a model).

    Attributes:
        indices: int32, shape (k,), strictly increasing, each in [0, N).
        values: float32, shape (k,), the entries at ``indices``.
    """

    indices: Indices
    values: Vector

    NUMBER = 2
    TYPES = ("<i4", "<f4")

    @classmethod
    def nothing(cls) -> Self:
        """Create a payload without entries, for a message such as a vote."""
        return cls(np.empty(0, np.int32), np.empty(0, np.float32))

    def flaw(self, size: int) -> str:
        if self.indices.size != self.values.size:
            return f"{self.indices.size} indices with {self.values.size} values"
        if not ascending(self.indices, size):
            return f"indices must increase strictly within [0, {size})"
        return ""

    def with_values(self, values: Vector) -> Self:
        kept = values != 0
        return type(self)(self.indices[kept], values[kept])


@dataclass(frozen=True, eq=False)
class Dense(Packable):
    """All N entries, in order: float32, shape (N,)."""

    values: Vector

    NUMBER = 1
    TYPES = ("<f4",)

    def flaw(self, size: int) -> str:
        return "" if self.entries == size else f"{self.entries} values for a model of {size}"

    def with_values(self, values: Vector) -> Self:
        return type(self)(values)
