"""Core keys at the parameter server: those that pushes leave out, and those that replies may."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace

from testbed.algorithms.base import Reply
from testbed.algorithms.frame.effects import Release
from testbed.payloads.keyed import KeyCaches, UnknownKeysError
from testbed.rpc.messages import PushMessage
from testbed.telemetry.events import EventLog
from testbed.telemetry.ps_events import KeysMissed


@dataclass
class ServerKeys:
    """The server's caches for all workers' connections; a new server knows no keys."""

    log: EventLog
    caches: defaultdict[int, KeyCaches] = field(default_factory=lambda: defaultdict(KeyCaches))

    def complete(self, push: PushMessage, *, missed: int) -> PushMessage:
        """Restore the core keys that a push left out.

        The reply to a push that ``wants_keys`` includes all keys; ``missed`` is the size of the
        reply that the worker could not use.

        Raises:
            UnknownKeysError: the keys are unknown; the worker will repeat the push with them.
            RejectedError: the keys do not match their signature.
        """
        caches, node = self.caches[push.worker], f"w{push.worker}"
        if push.wants_keys:
            caches.down.drop()
            self.log.write(KeysMissed(node, "down", missed))
        try:
            payload = caches.up.incoming(push.update.payload)
        except UnknownKeysError:
            self.log.write(KeysMissed(node, "up", push.payload_bytes))
            raise
        return replace(push, update=replace(push.update, payload=payload))

    def accepted(self, push: PushMessage) -> None:
        """Remember the keys of a push that was accepted, now or earlier."""
        self.caches[push.worker].up.remember(push.update.payload)

    def shorten(self, release: Release) -> Reply | None:
        """Return a reply without the core keys that its worker knows."""
        reply = release.reply
        if reply is None:
            return None
        return replace(reply, model=self.caches[release.worker].down.outgoing(reply.model))
