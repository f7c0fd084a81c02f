"""Factors of the matrices of a vector, which are fewer numbers than the matrices."""

from __future__ import annotations

from dataclasses import dataclass

from testbed.payloads.base import Payload, Vector


@dataclass(frozen=True, eq=False)
class Factors(Payload):
    """Numbers from which an algorithm computes all N entries, or a part of such numbers.

    Attributes:
        values: float32, shape (k,), k at most N: the factors of each matrix, row by row, in the
            order that both sides know, and entries of tensors that have none.
    """

    values: Vector

    NUMBER = 6
    TYPES = ("<f4",)

    def flaw(self, size: int) -> str:
        found = self.entries
        return "" if found <= size else f"{found} numbers of factors for a model of {size}"
