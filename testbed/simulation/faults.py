"""Carries the faults' timeline out on modelled workers, at the moments that it names."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from math import inf
from typing import TYPE_CHECKING

from testbed.faults.timeline import Timeline
from testbed.simulation.agenda import Happening, Planned

if TYPE_CHECKING:
    from testbed.simulation.engine import Engine


@dataclass
class Faults:
    """An actuator (testbed.faults.base.Actuator) whose workers are an engine's."""

    engine: Engine
    timeline: Timeline
    _next: Planned | None = None

    def plan(self) -> None:
        """Note when something is due."""
        if self._next is not None:
            self._next.strike()
        at = self.timeline.next_time
        self._next = None if at == inf else self.engine.agenda.at(at, self._act)

    def reached(self, version: int) -> None:
        """So many updates are in the model."""
        if self.timeline.reached(version, now=self.engine.agenda.now):
            self.plan()

    def evaluated(self, accuracy: float | None) -> None:
        """An evaluation during training has found this; None where there is no accuracy."""
        if accuracy is not None and self.timeline.evaluated(accuracy, now=self.engine.agenda.now):
            self.plan()

    def _act(self, now: float) -> None:
        self._next = None
        for deed in self.timeline.due(now):
            done = self.timeline.carry_out(deed, self, lambda: now)
            self.engine.recorder.event(done)
        self.plan()

    def freeze(self, worker: int, *, for_good: bool) -> None:
        """See Actuator. What the kernel has of a message is carried on all the same."""
        self.engine.devices[worker].freeze(self.engine.agenda.now)
        if for_good:
            self.engine.silence(worker)

    def thaw(self, worker: int) -> None:
        """See Actuator."""
        now = self.engine.agenda.now
        for happening in self.engine.devices[worker].thaw(now):
            happening(now)

    def kill(self, worker: int) -> None:
        """See Actuator. It is noticed at once."""
        self.forget(worker)
        self.engine.leave(worker)

    def leave(self, worker: int) -> None:
        """See Actuator."""
        self.kill(worker)

    def join(self, worker: int) -> None:
        """See Actuator."""
        self.engine.devices[worker].begin(self.engine.agenda.now)
        self.engine.server.join(worker)
        self.engine.call(worker)

    def forget(self, worker: int) -> None:
        """A worker's process has ended: what it was doing comes to nothing."""
        self.engine.devices[worker].end()
        self.engine.workers.discard(worker)
        self.timeline.population.gone(worker)

    def living(self, worker: int, happening: Happening) -> Happening:
        """What comes to nothing if the worker's process has ended by then."""
        return partial(self._if_living, worker, self.engine.devices[worker].life, happening)

    def _if_living(self, worker: int, life: int, happening: Happening, now: float) -> None:
        if self.engine.devices[worker].life == life:
            happening(now)

    def awake(self, worker: int, happening: Happening, *, time: float = -inf) -> Happening:
        """What a device does at ``time``, or as much later as it has stood still by then."""
        return self.living(worker, partial(self._if_awake, worker, time, happening))

    def _if_awake(self, worker: int, time: float, happening: Happening, now: float) -> None:
        device, again = self.engine.devices[worker], self.awake(worker, happening, time=time)
        if device.frozen_at is not None:
            device.held.append(again)
        elif now < time + device.stood:
            self.engine.agenda.at(time + device.stood, again)
        else:
            happening(now)
