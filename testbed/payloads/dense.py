"""All entries of the vector."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from testbed.payloads.base import Packable, Vector


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
