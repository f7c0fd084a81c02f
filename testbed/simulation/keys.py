"""The core keys known at both ends of a worker's links, which its messages may omit.

The caches are those of a live run, payloads/keyed.py. If a message omits keys that its receiver
does not know, the receiver cannot use it, and it is resent with the keys, as in a live run.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from testbed.payloads import Payload
from testbed.payloads.keyed import KeyCache, KeyCaches, UnknownKeysError


@dataclass
class KeyedLinks:
    """The key caches of one worker's links.

    Attributes:
        worker: the worker's own caches.
        server: the parameter server's caches for the worker.
    """

    worker: KeyCaches = field(default_factory=KeyCaches)
    server: KeyCaches = field(default_factory=KeyCaches)
    _up: Payload | None = None  # the last push, complete
    _sent_up: Payload | None = None  # and as it was sent
    _down: Payload | None = None  # the last reply
    _sent_down: Payload | None = None

    @property
    def replied_bytes(self) -> int:
        """Payload size of the last reply, as sent."""
        return 0 if self._sent_down is None else self._sent_down.size

    def push(self, payload: Payload | None = None) -> int:
        """Send a push, or resend the last one; return the bytes of its payload."""
        self._up = payload or self._up
        assert self._up is not None, "the first push must have a payload"
        self._sent_up = self.worker.up.outgoing(self._up)
        return self._sent_up.size

    def receive_push(self) -> bool:
        """Receive the push at the server; return whether it knows all keys of the push."""
        assert self._sent_up is not None, "a push must have been sent"
        return _receive(self.server.up, self._sent_up)

    def reply(self, payload: Payload | None = None) -> int:
        """Send a reply, or resend the last one with its keys; return the bytes of its payload."""
        if payload is None:
            self.server.down.drop()
        self._down = payload or self._down
        assert self._down is not None, "the first reply must have a payload"
        self._sent_down = self.server.down.outgoing(self._down)
        return self._sent_down.size

    def receive_reply(self) -> bool:
        """Receive the reply at the worker; return whether it knows all keys of the reply."""
        assert self._sent_down is not None, "a reply must have been sent"
        return _receive(self.worker.down, self._sent_down)


def _receive(cache: KeyCache, payload: Payload) -> bool:
    try:
        cache.remember(cache.incoming(payload))
    except UnknownKeysError:
        return False
    return True
