"""The core keys known at both ends of a worker's links, which its messages may omit.

The caches are those of a live run, payloads/key_cache.py. If a message omits keys that its receiver
does not know, the receiver cannot use it, and it is resent with the keys, as in a live run.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from testbed.events.kinds import KeysMissed
from testbed.payloads import Payload
from testbed.payloads.key_cache import KeyCache, KeyCaches, UnknownKeysError

if TYPE_CHECKING:
    from testbed.simulation.engine import Engine
    from testbed.simulation.worker import Cycle


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


@dataclass
class Misses:
    """Handles messages with unknown keys on an engine's links."""

    engine: Engine

    def push(self, cycle: Cycle) -> None:
        """Report a push with unknown keys to its worker, which resends it."""
        worker, device = cycle.worker, self.engine.devices[cycle.worker]
        self.engine.recorder.event(KeysMissed(f"w{worker}", "up", cycle.payload_bytes))
        again = self.engine.faults.unless_frozen(worker, partial(self._push_again, cycle))
        transfer = device.down.send(0, device.rng)
        device.down.bucket.carry(*transfer, link=self.engine.downlink, done=again)

    def reply(self, worker: int) -> None:
        """Resend a worker's push, to get a reply that includes the unknown keys."""
        device, size = self.engine.devices[worker], self._keys(worker).push()
        asked = self.engine.faults.if_alive(worker, partial(self._asked_again, worker))
        transfer = device.up.send(size, device.rng)
        device.up.bucket.carry(*transfer, link=self.engine.uplink, done=asked)

    def _push_again(self, cycle: Cycle, now: float) -> None:
        keys = self._keys(cycle.worker)
        keys.worker.up.drop()
        self.engine.push(cycle, now)

    def _asked_again(self, worker: int, now: float) -> None:
        answer = self.engine.faults.if_alive(worker, partial(self._answer_again, worker))
        self.engine.enqueue(answer, now)

    def _answer_again(self, worker: int, now: float) -> None:
        keys = self._keys(worker)
        self.engine.recorder.event(KeysMissed(f"w{worker}", "down", keys.replied_bytes))
        self.engine.send_down(worker, keys.reply(), now)

    def _keys(self, worker: int) -> KeyedLinks:
        keys = self.engine.devices[worker].keys
        assert keys is not None, "the algorithm must send keys"
        return keys


def _receive(cache: KeyCache, payload: Payload) -> bool:
    try:
        cache.remember(cache.incoming(payload))
    except UnknownKeysError:
        return False
    return True
