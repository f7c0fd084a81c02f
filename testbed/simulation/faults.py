"""What changes simulated workers and their links during a run: faults, and traces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import ClassVar

from testbed.faults import ChangedLink, Freeze, Join, Kill, Leave, NetworkPartition, Slow
from testbed.faults.base import PassingFault, TimedFault
from testbed.faults.timeline import Timeline
from testbed.scenario.traces import Following
from testbed.simulation.event_queue import Callback, ScheduledEvent
from testbed.simulation.links import Bucket, FairLink
from testbed.simulation.model import burst_bytes, delayed
from testbed.simulation.simulated_run import SimulatedRun
from testbed.telemetry.ps_events import Joined
from testbed.values.units import Rate


@dataclass
class Faults:
    """An actuator (testbed.faults.base.Actuator) for an engine's workers.

    Attributes:
        horizon: the next time at which a worker's pace may change.
    """

    STATE: ClassVar = ("_next", "horizon")
    engine: SimulatedRun
    timeline: Timeline
    horizon: float = inf
    _next: ScheduledEvent | None = None

    def plan(self) -> None:
        """Schedule the next fault action."""
        if self._next is not None:
            self._next.cancel()
        at, self.horizon = self.timeline.next_time, self.timeline.next_pace
        self._next = None if at == inf else self.engine.events.at(at, self._act)

    def reached(self, version: int) -> None:
        """Notify the timeline of the model's version."""
        if self.timeline.reached(version, now=self.engine.events.now):
            self.plan()

    def evaluated(self, found: Mapping[str, float | None]) -> None:
        """Notify the timeline of an evaluation's values."""
        if self.timeline.evaluated(found, now=self.engine.events.now):
            self.plan()

    def _act(self, now: float) -> None:
        self._next, horizon = None, self.horizon
        for action in self.timeline.due(now):
            done = self.timeline.carry_out(action, self, lambda: now)
            self.engine.recorder.event(done)
        self.plan()
        if self.horizon > horizon:
            self.engine.extend_horizon()

    def begin(self, fault: TimedFault, target: int) -> None:
        """Begin a fault of a worker's device, process or link.

        Data that the kernel of a frozen device already holds is still sent, and a message that has
        left a link keeps its latency. The server notices at once that a worker was killed.
        """
        now, device = self.engine.events.now, self.engine.devices[target]
        match fault:
            case Freeze(duration=duration):
                device.frozen_at = now
                if duration is None:
                    self.engine.silence(target)
            case Kill() | Leave():
                self.forget(target)
                self.engine.leave(target)
            case Join():
                device.called_at = device.arrived_at = now
                device.transfers = device.blocks = 0.0
                self.engine.server.join(target)
                self.engine.recorder.event(Joined(f"w{target}"))
                self.engine.call(target)
            case NetworkPartition():
                for bucket, link in self._own_links(target):
                    bucket.disconnect(link=link)
            case Slow(factor=factor):
                device.slow = factor
            case ChangedLink(up=up, down=down):
                device.up, device.down = delayed(*device.configured, up.delay, down.delay)
                for (bucket, link), change in zip(self._own_links(target), (up, down), strict=True):
                    if change.rate is not None:
                        scale, frame = self.engine.recorder.time_scale, device.up.frame_bytes
                        depth = burst_bytes(change.rate, scale, frame)
                        bucket.change(change.rate.bytes_per_second, depth, link=link)

    def end(self, fault: PassingFault, target: int) -> None:
        """Undo a fault."""
        now, device = self.engine.events.now, self.engine.devices[target]
        match fault:
            case Freeze():
                for callback in device.thaw(now):
                    callback(now)
            case NetworkPartition():
                for bucket, link in self._own_links(target):
                    bucket.reconnect(link=link)
            case Slow():
                device.slow = 1.0
            case ChangedLink():
                device.up, device.down = device.configured
                for bucket, link in self._own_links(target):
                    bucket.change(*bucket.configured, link=link)

    def _own_links(self, worker: int) -> Sequence[tuple[Bucket, FairLink]]:
        """Return a worker's buckets, up and down, each with the PS's link."""
        device, engine = self.engine.devices[worker], self.engine
        return (device.up.bucket, engine.uplink), (device.down.bucket, engine.downlink)

    def forget(self, worker: int) -> None:
        """Discard all activity of a worker whose process has ended."""
        self.engine.devices[worker].end()
        for bucket, link in self._own_links(worker):
            bucket.reset(link=link)
        self.engine.workers.discard(worker, self.engine.events.now)
        self.timeline.population.mark_absent(worker)

    def if_alive(self, worker: int, callback: Callback) -> Callback:
        """Wrap a callback so that it runs only if the worker's process still exists."""
        return partial(self._run_if_alive, worker, self.engine.devices[worker].generation, callback)

    def _run_if_alive(self, worker: int, generation: int, callback: Callback, now: float) -> None:
        if self.engine.devices[worker].generation == generation:
            callback(now)

    def unless_frozen(self, worker: int, callback: Callback, *, time: float = -inf) -> Callback:
        """Wrap a device's callback for ``time`` so that frozen time delays it."""
        generation = self.engine.devices[worker].generation
        return partial(self._run_unless_frozen, worker, generation, time, callback)

    def _run_unless_frozen(
        self, worker: int, generation: int, time: float, callback: Callback, now: float
    ) -> None:
        device = self.engine.devices[worker]
        if device.generation != generation:
            return
        if device.frozen_at is not None:
            device.deferred.append(self.unless_frozen(worker, callback, time=time))
        elif now < time + device.frozen_seconds:
            again = self.unless_frozen(worker, callback, time=time)
            self.engine.events.at(time + device.frozen_seconds, again)
        else:
            callback(now)


@dataclass
class Traces:
    """The links that follow traces; their positions are only in the event queue."""

    STATE: ClassVar = ()
    engine: SimulatedRun
    followings: Sequence[Following] = ()

    def begin(self) -> None:
        """Set every link to its trace's value at the start of training."""
        for number, one in enumerate(self.followings):
            self._step(number, one.trace.at(0.0, one.offset), 0.0)

    def _step(self, number: int, value: float, now: float) -> None:
        one = self.followings[number]
        engine, up = self.engine, one.direction == "up"
        device = engine.devices[one.worker]
        if one.what == "rate":
            bucket, rate = (device.up if up else device.down).bucket, Rate(value)
            depth = burst_bytes(rate, engine.recorder.time_scale, device.up.frame_bytes)
            bucket.configured = rate.bytes_per_second, depth
            bucket.change(*bucket.configured, link=engine.uplink if up else engine.downlink)
        else:
            delays = (value, None) if up else (None, value)
            device.configured = device.up, device.down = delayed(*device.configured, *delays)
        following = one.trace.after(now, value, one.offset)
        if following is not None:
            at, then = following
            engine.events.at(at, partial(self._step, number, then))
