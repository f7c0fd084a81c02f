"""Values of core keys that both ends may know already, and of explorer keys that go along."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from testbed.payloads.base import Indices, Payload, Vector, ascending

Signature = NDArray[np.uint64]
"""Of a list of keys: uint64, shape (1,)."""


def signature_of(keys: Indices) -> Signature:
    """The 64 bits by which a list of core keys is known: BLAKE2b of its int32, little-endian."""
    digest = hashlib.blake2b(np.ascontiguousarray(keys, "<i4").data, digest_size=8).digest()
    return np.frombuffer(digest, "<u8")


@dataclass(frozen=True, eq=False)
class Keyed(Payload):
    """Some entries, of which the core's keys change seldom; see ``key_cache`` for how they travel.

    Attributes:
        signature: of the core's keys.
        core: int32, shape (c,), strictly increasing, each in [0, N); none at all where the receiver
            is to have them in its cache.
        core_values: float32, shape (c,).
        explorer: int32, shape (e,), likewise, and none of them in the core.
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
        """Whether the core has as many keys as values."""
        return self.core.size == self.core_values.size

    def with_core(self, keys: Indices) -> Keyed:
        """The same with these core keys, or without any."""
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
