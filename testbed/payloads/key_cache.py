"""Core keys travel once: each end of a direction remembers those that went over it last.

A sender leaves out the keys that it sent before; a signature of 8 bytes stands for them. A receiver
that does not know the signature refuses the message, and nothing of it is applied; the sender then
repeats it with its keys. So a cache that is lost, or that of a worker that joins anew, costs one
message. No algorithm sees any of this. The codec and the simulator use the same caches.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from testbed.errors import RejectedError
from testbed.payloads.base import Payload
from testbed.payloads.keyed import Keyed, signature_of


class UnknownKeysError(RejectedError):
    """A message whose core keys its receiver does not know: to be repeated with them."""


@dataclass
class KeyCache:
    """One end's memory of one direction between a worker and the parameter server."""

    _known: Keyed | None = None  # without values

    def outgoing(self, payload: Payload) -> Payload:
        """The payload as it is sent: without core keys that were sent before."""
        if not isinstance(payload, Keyed) or not payload.core.size:
            return payload
        if self.knows(payload):
            return payload.with_core(payload.core[:0])
        self.remember(payload)
        return payload

    def incoming(self, payload: Payload) -> Payload:
        """The payload with all its keys. Changes nothing: ``remember`` it once it is accepted.

        Raises:
            UnknownKeysError: its keys are not there and not known.
            RejectedError: its signature is not that of its keys.
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
        """These core keys are known at both ends from now on."""
        if isinstance(payload, Keyed) and payload.core.size and not self.knows(payload):
            core, none = payload.core.copy(), payload.core_values[:0].copy()  # it may be a view
            self._known = Keyed(payload.signature.copy(), core, none, core[:0], none)

    def drop(self) -> None:
        """Forget the keys."""
        self._known = None

    def knows(self, payload: Keyed) -> bool:
        """Whether a payload's core keys went over it last."""
        return self._known is not None and self._known.signature[0] == payload.signature[0]


@dataclass
class KeyCaches:
    """The two caches at one end of a worker's connection.

    Attributes:
        up: of what the worker sends.
        down: of what it is sent.
    """

    up: KeyCache = field(default_factory=KeyCache)
    down: KeyCache = field(default_factory=KeyCache)

    def drop(self) -> None:
        """Forget the keys of both directions, as a process does that ends."""
        self.up.drop()
        self.down.drop()
