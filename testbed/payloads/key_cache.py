"""Caches that send core keys only once: each end of a direction stores the last keys sent.

A sender omits keys that it sent before, and sends their 8-byte signature instead. A receiver that
does not know the signature refuses the message and applies nothing of it; the sender then repeats
it with the keys. So a lost cache, such as that of a worker that joins again, costs one message.
This is transparent to algorithms. The codec and the simulator use the same caches.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from testbed.errors import RejectedError
from testbed.payloads.base import Payload
from testbed.payloads.keyed import Keyed, signature_of


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
