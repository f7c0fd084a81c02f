"""Values of core keys, which both ends may already know, and of explorer keys, always sent.

A cache at each end of a direction stores the last core keys sent. A sender omits keys that it sent
before, and sends their 8-byte signature instead. A receiver that does not know the signature
refuses the message and applies nothing of it; the sender then repeats it with the keys. So a lost
cache, such as that of a worker that joins again, costs one message. This is transparent to
algorithms. The codec and the simulator use the same caches.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from testbed.errors import RejectedError
from testbed.payloads.base import Indices, Payload, Vector, ascending

Signature = NDArray[np.uint64]
"""Signature of a list of keys: uint64, shape (1,)."""


def signature_of(keys: Indices) -> Signature:
    """Return the 64-bit signature of a list of core keys: BLAKE2b of its little-endian int32."""
    digest = hashlib.blake2b(np.ascontiguousarray(keys, "<i4").data, digest_size=8).digest()
    return np.frombuffer(digest, "<u8")


@dataclass(frozen=True, eq=False)
class Keyed(Payload):
    """Some entries, whose core keys rarely change; ``KeyCache`` avoids resending them.

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


class UnknownKeysError(RejectedError):
    """The receiver does not know a message's core keys; the sender must repeat it with them."""


@dataclass
class KeyCache:
    """One end's cache for one direction between a worker and the parameter server."""

    _known: Keyed | None = None  # without values

    def outgoing(self, payload: Payload) -> Payload:
        """Return the payload to send: without core keys that were sent before."""
        if not isinstance(payload, Keyed) or not payload.core.size:
            return payload
        if self.knows(payload):
            return payload.with_core(payload.core[:0])
        self.remember(payload)
        return payload

    def incoming(self, payload: Payload) -> Payload:
        """Return the payload with all its keys. Changes nothing: ``remember`` it once accepted.

        Raises:
            UnknownKeysError: its keys are omitted and unknown.
            RejectedError: its signature does not match its keys.
        """
        if not isinstance(payload, Keyed) or payload.signature.size != 1:
            return payload
        if payload.core.size:
            if signature_of(payload.core)[0] != payload.signature[0]:
                raise RejectedError("the signature is not that of the core keys")
            return payload
        if payload.complete:
            return payload
        if self._known is None or not self.knows(payload):
            signature = int(payload.signature[0])
            raise UnknownKeysError(f"core keys with the signature {signature:016x} are not known")
        return payload.with_core(self._known.core)

    def remember(self, payload: Payload) -> None:
        """Store the payload's core keys, now known at both ends."""
        if isinstance(payload, Keyed) and payload.core.size and not self.knows(payload):
            core, none = payload.core.copy(), payload.core_values[:0].copy()  # it may be a view
            self._known = Keyed(payload.signature.copy(), core, none, core[:0], none)

    def drop(self) -> None:
        """Forget the keys."""
        self._known = None

    def knows(self, payload: Keyed) -> bool:
        """Return whether a payload's core keys are the stored ones."""
        return self._known is not None and self._known.signature[0] == payload.signature[0]


@dataclass
class KeyCaches:
    """The two caches at one end of a worker's connection.

    Attributes:
        up: the cache for messages from the worker.
        down: the cache for messages to the worker.
    """

    up: KeyCache = field(default_factory=KeyCache)
    down: KeyCache = field(default_factory=KeyCache)

    def drop(self) -> None:
        """Forget the keys of both directions, as when a process ends."""
        self.up.drop()
        self.down.drop()
