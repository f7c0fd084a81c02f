"""Values of core keys, which both ends may already know, and of explorer keys, always sent."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from testbed.payloads.base import Indices, Payload, Vector, ascending

Signature = NDArray[np.uint64]
"""Signature of a list of keys: uint64, shape (1,)."""


def signature_of(keys: Indices) -> Signature:
    """Return the 64-bit signature of a list of core keys: BLAKE2b of its little-endian int32."""
    digest = hashlib.blake2b(np.ascontiguousarray(keys, "<i4").data, digest_size=8).digest()
    return np.frombuffer(digest, "<u8")


@dataclass(frozen=True, eq=False)
class Keyed(Payload):
    """Some entries, whose core keys rarely change; ``key_cache`` avoids resending them.

    Attributes:
        signature: signature of the core keys.
        core: int32, shape (c,), strictly increasing, each in [0, N); empty if the receiver must
            have the keys in its cache.
        core_values: float32, shape (c,).
        explorer: int32, shape (e,), strictly increasing, each in [0, N), disjoint from the core.
        explorer_values: float32, shape (e,).
    """

    signature: Signature
    core: Indices
    core_values: Vector
    explorer: Indices
    explorer_values: Vector

    NUMBER = 3
    TYPES = ("<u8", "<i4", "<f4", "<i4", "<f4")

    @property
    def entries(self) -> int:
        return self.core_values.size + self.explorer_values.size

    @property
    def complete(self) -> bool:
        """Whether the core keys are included; a sender omits keys that the receiver knows."""
        return self.core.size == self.core_values.size

    def with_core(self, keys: Indices) -> Keyed:
        """Return a copy with these core keys, possibly none."""
        return replace(self, core=keys)

    def flaw(self, size: int) -> str:
        if self.signature.size != 1:
            return f"{self.signature.size} signatures of core keys, expected one"
        parts = (
            ("core", self.core, self.core_values),
            ("explorer", self.explorer, self.explorer_values),
        )
        for name, keys, values in parts:
            if keys.size != values.size:
                return f"{keys.size} {name} keys with {values.size} values"
            if not ascending(keys, size):
                return f"{name} keys must increase strictly within [0, {size})"
        taken = np.zeros(size, np.bool_)
        taken[self.core] = True
        both = np.count_nonzero(taken[self.explorer])
        return f"{both} keys are in the core and in the explorer" if both else ""

    @property
    def finite(self) -> bool:
        values = (self.core_values, self.explorer_values)
        return all(bool(np.isfinite(one).all()) for one in values)
