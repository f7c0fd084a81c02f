"""All entries of the vector."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from testbed.payloads.base import Array, Payload, Vector


@dataclass(frozen=True, eq=False)
class Dense(Payload):
    """All N entries, in order.

    Attributes:
        values: float32, shape (N,).
    """

    values: Vector

    NUMBER = 1
    TYPES = ("<f4",)

    @classmethod
    def of(cls, arrays: Sequence[Array]) -> Self:
        """See Payload."""
        return cls(arrays[0])

    @property
    def arrays(self) -> tuple[Array, ...]:
        """See Payload."""
        return (self.values,)

    @property
    def entries(self) -> int:
        """N."""
        return self.values.size

    def flaw(self, size: int) -> str:
        """See Payload."""
        return "" if self.entries == size else f"{self.entries} values for a model of {size}"

    @property
    def finite(self) -> bool:
        """See Payload."""
        return bool(np.isfinite(self.values).all())
