"""Messages whose receiver does not know the keys that they omit: they are sent again."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from testbed.simulation.faults import Faults
from testbed.simulation.keys import KeyedLinks
from testbed.simulation.simulated_run import SimulatedRun
from testbed.simulation.worker import Cycle
from testbed.telemetry.ps_events import KeysMissed


@dataclass
class Misses:
    """Handles messages with unknown keys on an engine's links."""

    engine: SimulatedRun
    faults: Faults

    def push(self, cycle: Cycle) -> None:
        """Report a push with unknown keys to its worker, which resends it."""
        worker, device = cycle.worker, self.engine.devices[cycle.worker]
        self.engine.recorder.event(KeysMissed(f"w{worker}", "up", cycle.payload_bytes))
        again = self.faults.unless_frozen(worker, partial(self._push_again, cycle))
        transfer = device.down.send(0, device.rng)
        device.down.bucket.carry(*transfer, link=self.engine.downlink, done=again)

    def reply(self, worker: int) -> None:
        """Resend a worker's push, to get a reply that includes the unknown keys."""
        device, size = self.engine.devices[worker], self._keys(worker).push()
        asked = self.faults.if_alive(worker, partial(self._asked_again, worker))
        transfer = device.up.send(size, device.rng)
        device.up.bucket.carry(*transfer, link=self.engine.uplink, done=asked)

    def _push_again(self, cycle: Cycle, now: float) -> None:
        keys = self._keys(cycle.worker)
        keys.worker.up.drop()
        self.engine.push(cycle, now)

    def _asked_again(self, worker: int, now: float) -> None:
        answer = self.faults.if_alive(worker, partial(self._answer_again, worker))
        self.engine.enqueue(answer, now)

    def _answer_again(self, worker: int, now: float) -> None:
        keys = self._keys(worker)
        self.engine.recorder.event(KeysMissed(f"w{worker}", "down", keys.replied_bytes))
        self.engine.send_down(worker, keys.reply(), now)

    def _keys(self, worker: int) -> KeyedLinks:
        keys = self.engine.devices[worker].keys
        assert keys is not None, "the algorithm must send keys"
        return keys
