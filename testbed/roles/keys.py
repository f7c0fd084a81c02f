"""Core keys at the parameter server: those that pushes leave out, and those that replies may."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace

from testbed.algorithms.base import Reply
from testbed.events.kinds import KeysMissed
from testbed.frame.effects import Release
from testbed.payloads.key_cache import KeyCaches, UnknownKeysError
from testbed.rpc.messages import PushMessage
from testbed.telemetry.events import EventLog


@dataclass
class ServerKeys:
    """The server's ends of all workers' connections; a new server knows no keys."""

    log: EventLog
    caches: defaultdict[int, KeyCaches] = field(default_factory=lambda: defaultdict(KeyCaches))

    def complete(self, push: PushMessage, *, missed: int) -> PushMessage:
        """A push with the core keys that it left out.

        One that ``wants_keys`` is answered with all of them: the reply of so many bytes that it had
        was of no use.

        Raises:
            UnknownKeysError: its keys are not known; the worker will repeat it with them.
            RejectedError: its signature is not that of its keys.
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
        """A push was taken, or had been: its keys are known from now on."""
        self.caches[push.worker].up.remember(push.update.payload)

    def shorten(self, release: Release) -> Reply | None:
        """A reply without the core keys that its worker knows."""
        reply = release.reply
        if reply is None:
            return None
        return replace(reply, model=self.caches[release.worker].down.outgoing(reply.model))
