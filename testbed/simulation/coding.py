"""Coding times on an engine's devices and at its parameter server, from the scenario's ``codec``.

A core counts as selected if its keys are new: an unchanged core costs no selection. A message that
is resent because its keys were unknown is not coded again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from testbed.algorithms.base import Reply
from testbed.payloads import Keyed, Payload
from testbed.scenario.durations import Codec, CodecTimes
from testbed.simulation.simulated_run import SimulatedRun

if TYPE_CHECKING:
    from testbed.simulation.worker import Cycle


@dataclass
class Coding:
    """Emulated seconds of coding; with an empty ``codec``, none."""

    STATE: ClassVar = ("_version", "_ready_at", "_signature")
    engine: SimulatedRun
    codec: Codec
    _version: int = -1  # of the reply that the server coded last
    _ready_at: float = 0.0  # when that coding ended
    _signature: int = 0  # of that reply's core

    def __post_init__(self) -> None:
        self._free = self.codec == Codec()  # true in most scenarios: skip all lookups

    def push_seconds(self, cycle: Cycle) -> float:
        """Return how long a worker takes to encode its push."""
        if self._free:
            return 0.0
        payload, keys = cycle.update.payload, self.engine.devices[cycle.worker].keys
        if isinstance(payload, Keyed):
            selected = not (keys and keys.worker.up.knows(payload))
        else:
            selected = "rho" in cycle.update.note  # what Top-k would lose: it selects to know that
        return self._send_seconds(self.codec.worker, payload, selected=selected)

    def served_seconds(self, cycle: Cycle) -> float:
        """Return how long the server takes to decode a push."""
        return self._take_seconds(self.codec.ps, cycle.update.payload)

    def received_seconds(self, reply: Reply) -> float:
        """Return how long a worker takes to decode a reply."""
        return self._take_seconds(self.codec.worker, reply.model)

    def reply_at(self, reply: Reply, now: float) -> float:
        """Return when the server has encoded a reply, once per model version for all workers."""
        if self._free:
            return now
        if reply.version != self._version:
            signature = int(reply.model.signature[0]) if isinstance(reply.model, Keyed) else 0
            selected = signature not in (0, self._signature)
            seconds = self._send_seconds(self.codec.ps, reply.model, selected=selected)
            if not seconds:  # such as the whole model, for a worker that has joined
                return now
            self._ready_at = self.engine.queue.occupy(now, seconds)
            self._version, self._signature = reply.version, signature
        return max(now, self._ready_at)

    def _send_seconds(self, times: CodecTimes, payload: Payload, *, selected: bool) -> float:
        if not payload.entries:
            return 0.0
        size = self.engine.server.half.parameters.size
        return times.send_seconds(type(payload), size, selected=selected)

    def _take_seconds(self, times: CodecTimes, payload: Payload) -> float:
        if self._free or not payload.entries:
            return 0.0
        return times.take_seconds(type(payload), self.engine.server.half.parameters.size)
