"""Applies the fault timeline to simulated workers, at its exact times."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import TYPE_CHECKING

from testbed.events.kinds import Joined
from testbed.faults.link import LinkChange
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
    """An actuator (testbed.faults.base.Actuator) for an engine's workers.

    Attributes:
        horizon: the next time at which a worker's pace may change.
    """

    engine: Engine
    timeline: Timeline
    horizon: float = inf
    _next: Planned | None = None

    def plan(self) -> None:
        """Schedule the next fault action."""
        if self._next is not None:
            self._next.strike()
        at, self.horizon = self.timeline.next_time, self.timeline.next_pace
        self._next = None if at == inf else self.engine.agenda.at(at, self._act)

    def reached(self, version: int) -> None:
        """Notify the timeline of the model's version."""
        if self.timeline.reached(version, now=self.engine.agenda.now):
            self.plan()

    def evaluated(self, accuracy: float | None) -> None:
        """Notify the timeline of an evaluation's accuracy; None if the model has none."""
        if accuracy is not None and self.timeline.evaluated(accuracy, now=self.engine.agenda.now):
            self.plan()

    def _act(self, now: float) -> None:
        self._next, horizon = None, self.horizon
        for action in self.timeline.due(now):
            done = self.timeline.carry_out(action, self, lambda: now)
            self.engine.recorder.event(done)
        self.plan()
        if self.horizon > horizon:
            self.engine.go_beyond()

    def freeze(self, worker: int, *, for_good: bool) -> None:
        """Freeze a worker's device. Data that the kernel already holds is still sent."""
        self.engine.devices[worker].freeze(self.engine.agenda.now)
        if for_good:
            self.engine.silence(worker)

    def thaw(self, worker: int) -> None:
        """Unfreeze a worker's device."""
        now = self.engine.agenda.now
        for happening in self.engine.devices[worker].thaw(now):
            happening(now)

    def kill(self, worker: int, *, for_good: bool) -> None:
        """Kill a worker's process; the server notices at once."""
        self.leave(worker)

    def leave(self, worker: int) -> None:
        """Let a worker leave."""
        self.forget(worker)
        self.engine.leave(worker)

    def join(self, worker: int) -> None:
        """Let a worker join and start."""
        self.engine.devices[worker].begin(self.engine.agenda.now)
        self.engine.server.join(worker)
        self.engine.recorder.event(Joined(f"w{worker}"))
        self.engine.call(worker)

    def partition(self, worker: int) -> None:
        """Cut a worker's links."""
        for bucket, link in self._own_links(worker):
            bucket.cut(link=link)

    def heal(self, worker: int) -> None:
        """Reconnect a worker's links."""
        for bucket, link in self._own_links(worker):
            bucket.mend(link=link)

    def slow(self, worker: int, factor: float) -> None:
        """Multiply a worker's step times by ``factor``."""
        self.engine.devices[worker].slow = factor

    def change_link(self, worker: int, up: LinkChange, down: LinkChange) -> None:
        """Change a worker's link. A message that has left the link keeps its latency."""
        device = self.engine.devices[worker]
        device.up, device.down = delayed(*device.planned, up.delay, down.delay)
        for (bucket, link), change in zip(self._own_links(worker), (up, down), strict=True):
            if change.rate is not None:
                self._set_rate(bucket, change.rate, link)

    def reset_link(self, worker: int) -> None:
        """Reset a worker's link to the scenario's values."""
        device = self.engine.devices[worker]
        device.up, device.down = device.planned
        for bucket, link in self._own_links(worker):
            bucket.change(*bucket.planned, link=link)

    def _set_rate(self, bucket: ChangingBucket, rate: Rate, link: FairLink) -> None:
        depth = burst_bytes(rate, self.engine.recorder.time_scale)
        bucket.change(rate.bytes_per_second, depth, link=link)

    def _own_links(self, worker: int) -> Iterator[tuple[ChangingBucket, FairLink]]:
        """Yield a worker's changeable buckets, up and down, each with the PS's link."""
        device, engine = self.engine.devices[worker], self.engine
        for path, link in ((device.up, engine.uplink), (device.down, engine.downlink)):
            if isinstance(path.bucket, ChangingBucket):
                yield path.bucket, link

    def forget(self, worker: int) -> None:
        """Discard all activity of a worker whose process has ended."""
        self.engine.devices[worker].end()
        self.heal(worker)
        self.reset_link(worker)
        self.engine.workers.discard(worker)
        self.timeline.population.mark_absent(worker)

    def living(self, worker: int, happening: Happening) -> Happening:
        """Wrap a callback so that it runs only if the worker's process still exists."""
        return partial(self._if_living, worker, self.engine.devices[worker].life, happening)

    def _if_living(self, worker: int, life: int, happening: Happening, now: float) -> None:
        if self.engine.devices[worker].life == life:
            happening(now)

    def awake(self, worker: int, happening: Happening, *, time: float = -inf) -> Happening:
        """Wrap a device's callback for ``time`` so that frozen time delays it."""
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
