"""Carries the faults' timeline out on modelled workers, at the moments that it names."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import TYPE_CHECKING

from testbed.events.kinds import Joined
from testbed.faults.link import Change
from testbed.faults.timeline import Timeline
from testbed.simulation.agenda import Happening, Planned
from testbed.simulation.changing import ChangingBucket
from testbed.simulation.links import FairLink
from testbed.simulation.model import burst_bytes, delayed
from testbed.values.units import Rate

if TYPE_CHECKING:
    from testbed.simulation.engine import Engine


@dataclass
class Faults:
    """An actuator (testbed.faults.base.Actuator) whose workers are an engine's.

    Attributes:
        horizon: the next moment at which steps may begin to take longer, or end to.
    """

    engine: Engine
    timeline: Timeline
    horizon: float = inf
    _next: Planned | None = None

    def plan(self) -> None:
        """Note when something is due."""
        if self._next is not None:
            self._next.strike()
        at, self.horizon = self.timeline.next_time, self.timeline.next_pace
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
        self._next, horizon = None, self.horizon
        for deed in self.timeline.due(now):
            done = self.timeline.carry_out(deed, self, lambda: now)
            self.engine.recorder.event(done)
        self.plan()
        if self.horizon > horizon:
            self.engine.go_beyond()

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

    def kill(self, worker: int, *, for_good: bool) -> None:
        """See Actuator. It is noticed at once."""
        self.leave(worker)

    def leave(self, worker: int) -> None:
        """See Actuator."""
        self.forget(worker)
        self.engine.leave(worker)

    def join(self, worker: int) -> None:
        """See Actuator."""
        self.engine.devices[worker].begin(self.engine.agenda.now)
        self.engine.server.join(worker)
        self.engine.recorder.event(Joined(f"w{worker}"))
        self.engine.call(worker)

    def partition(self, worker: int) -> None:
        """See Actuator."""
        for bucket, link in self._own_links(worker):
            bucket.cut(link=link)

    def heal(self, worker: int) -> None:
        """See Actuator."""
        for bucket, link in self._own_links(worker):
            bucket.mend(link=link)

    def slow(self, worker: int, factor: float) -> None:
        """See Actuator."""
        self.engine.devices[worker].slow = factor

    def change_link(self, worker: int, up: Change, down: Change) -> None:
        """See Actuator. A message that has left the link keeps its latency."""
        device = self.engine.devices[worker]
        device.up, device.down = delayed(*device.planned, up.delay, down.delay)
        for (bucket, link), change in zip(self._own_links(worker), (up, down), strict=True):
            if change.rate is not None:
                self._set_rate(bucket, change.rate, link)

    def reset_link(self, worker: int) -> None:
        """See Actuator."""
        device = self.engine.devices[worker]
        device.up, device.down = device.planned
        for bucket, link in self._own_links(worker):
            bucket.change(*bucket.planned, link=link)

    def _set_rate(self, bucket: ChangingBucket, rate: Rate, link: FairLink) -> None:
        depth = burst_bytes(rate, self.engine.recorder.time_scale)
        bucket.change(rate.bytes_per_second, depth, link=link)

    def _own_links(self, worker: int) -> Iterator[tuple[ChangingBucket, FairLink]]:
        """Of a worker, up and down, where anything may become of them; and the PS's."""
        device, engine = self.engine.devices[worker], self.engine
        for path, link in ((device.up, engine.uplink), (device.down, engine.downlink)):
            if isinstance(path.bucket, ChangingBucket):
                yield path.bucket, link

    def forget(self, worker: int) -> None:
        """A worker's process has ended: what it was doing comes to nothing."""
        self.engine.devices[worker].end()
        self.heal(worker)
        self.reset_link(worker)
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
        life = self.engine.devices[worker].life
        return partial(self._if_awake, worker, life, time, happening)

    def _if_awake(
        self, worker: int, life: int, time: float, happening: Happening, now: float
    ) -> None:
        device = self.engine.devices[worker]
        if device.life != life:
            return
        if device.frozen_at is not None:
            device.held.append(self.awake(worker, happening, time=time))
        elif now < time + device.stood:
            again = self.awake(worker, happening, time=time)
            self.engine.agenda.at(time + device.stood, again)
        else:
            happening(now)
