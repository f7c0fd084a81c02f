"""The simulated run: the frame's server, the pool's workers, the links between them, one clock.

server releases a reply ─> down the links ─> the worker trains and thinks ─> up the links
     ^                                                                           │
     └──── served, once the PS has handled the requests before it <──────────────┘
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf
from typing import ClassVar

import numpy as np

from testbed.algorithms.base import Measured, Samples
from testbed.algorithms.frame.effects import NOTHING, Effects, Release
from testbed.algorithms.frame.record import UpdateRecord, shared_bytes
from testbed.algorithms.frame.stop import Due, Schedule, silence_reason
from testbed.errors import RejectedError
from testbed.faults.timeline import Timeline
from testbed.models import Evaluation
from testbed.models.metrics import values_of
from testbed.models.saved import Measurement
from testbed.payloads import Vector
from testbed.payloads.notes import note_bytes
from testbed.scenario.durations import Codec
from testbed.scenario.traces import Following
from testbed.simulation.coding import Coding
from testbed.simulation.device import DeviceModel, buckets_of
from testbed.simulation.event_queue import Callback, ScheduledEvent
from testbed.simulation.faults import Faults, Traces
from testbed.simulation.key_misses import Misses
from testbed.simulation.simulated_run import SimulatedRun
from testbed.simulation.worker import Cycle, Paused
from testbed.telemetry.ps_events import Crashed, Evaluated, Left, Rejected
from testbed.telemetry.rows import STREAMED, UPDATE


@dataclass
class Engine(SimulatedRun):
    """One simulated run.

    Attributes:
        images: indices of the test images for evaluations during the run.
        sample_bytes: size of a training sample that a worker shares.
        timeline: the pending faults.
        followings: the traces that links follow.
        codec: the durations of coding.
        keep: called with every evaluated model, which it may only borrow.
        checkpoints: when to call ``save``, between two events; None for never.
    """

    STATE: ClassVar = ("_due", "_tick_at", "_tick", "_save_at")
    schedule: Schedule
    images: Samples
    sample_bytes: int = 0
    timeline: Timeline = field(default_factory=Timeline)
    followings: Sequence[Following] = ()
    codec: Codec = field(default_factory=Codec)
    keep: Callable[[Vector, Measurement], None] = lambda parameters, taken: None
    checkpoints: Schedule | None = None
    save: Callable[[Engine], None] = lambda engine: None
    _rows: list[tuple[object, ...]] = field(default_factory=list)
    _due: Due = field(default_factory=Due)
    _tick_at: float = inf
    _tick: ScheduledEvent | None = None
    _save_at: Due = field(default_factory=Due)

    def __post_init__(self) -> None:
        self._record = UpdateRecord(self._rows.append, self.server.half.config.TAKES_STREAMS)
        self.faults = Faults(self, self.timeline)
        self._traces = Traces(self, self.followings)
        self._coding = Coding(self, self.codec)

    def run(self) -> None:
        """Run from the first pull to the last evaluation."""
        self.begin()
        self.continue_run()

    def begin(self) -> None:
        """Let all workers that are present at the start join and pull."""
        present = self.timeline.population.present(len(self.devices))
        for worker in present:
            self.server.join(worker)
        self.server.begin(0.0)
        self._traces.begin()
        self._plan_tick(0.0)  # a reply may arrive instantly, and start a worker's computation
        for worker in present:
            self.call(worker)
        self.faults.plan()
        self._carry_out(NOTHING)
        if self.checkpoints is not None:
            self._save_at = self.checkpoints.after(0, 0.0)

    def continue_run(self) -> None:
        """Continue to the last evaluation."""
        while not self.server.finished and self.events.advance():
            self.recorder.time_passed()
            if self.checkpoints is not None and not self.server.finished:
                self._save(self.checkpoints)
        self._evaluate(None)

    @property
    def parts(self) -> dict[str, object]:
        """The parts with their own state, by the names that other parts' states refer to."""
        return {
            "engine": self,
            "events": self.events,
            "queue": self.queue,
            "uplink": self.uplink,
            "downlink": self.downlink,
            "record": self._record,
            "faults": self.faults,
            "traces": self._traces,
            "coding": self._coding,
            "timeline": self.timeline,
            "population": self.timeline.population,
            **buckets_of(self.devices),
        }

    def _save(self, schedule: Schedule) -> None:
        """Save a checkpoint if one is due."""
        version, now = self.server.version, self.events.now
        if version >= self._save_at.version and now >= self._save_at.time:
            self._save_at = schedule.after(version, now)
            self.save(self)

    def silence(self, worker: int) -> None:
        """Freeze a worker's device for good; only the frame's books note it."""
        self.devices[worker].silent = True
        self._carry_out(self.server.silence(worker, self.events.now))

    def call(self, worker: int) -> None:
        """Start a worker's first call to the PS; its process has started."""
        self.enqueue(self.faults.if_alive(worker, partial(self._pull, worker)), self.events.now)

    def leave(self, worker: int) -> None:
        """Remove a worker from the run."""
        self._carry_out(self.server.leave(worker, self.events.now))

    def enqueue(self, serve: Callback, now: float, *, coding_seconds: float = 0.0) -> None:
        """Queue a request at the PS, which serves it after all earlier requests."""
        served = self.queue.take(now, coding_seconds=coding_seconds)
        self._at(served, serve)

    def _at(self, time: float, callback: Callback) -> None:
        """Schedule a call at ``time``; call it at once if that is now."""
        if time > self.events.now:
            self.events.at(time, callback)
        else:
            callback(self.events.now)

    def _pull(self, worker: int, now: float) -> None:
        """Serve a worker's first request."""
        self._carry_out(self.server.pull(worker, now))
        self._silence_again(worker)

    def _carry_out(self, effects: Effects) -> None:
        """Carry out the effects of a call to the server."""
        now = self.events.now
        for applied in effects.applied:
            self._record.enter(applied, now=now, elapsed=now / self.recorder.time_scale)
        if found := self._record.end_round(now):
            self.recorder.event(found)
        if effects.applied:
            self._flush()
            self.faults.reached(self.server.version)
        for worker in effects.removed:
            self.faults.forget(worker)
            self.recorder.event(Left(f"w{worker}", silence_reason(self.server.dead_after)))
        for release in effects.releases:
            if release.reply is not None:
                self._release(release)
        for worker, standing in effects.orders.items():
            device = self.devices[worker]
            device.order(worker, standing, now + device.down.delay(device.rng))
        if effects.measure or (not self.server.finished and self._is_due(now)):
            self._evaluate_snapshot(now)
        self._plan_tick(now)

    def _release(self, release: Release) -> None:
        """Start sending a reply down."""
        worker, reply, now = release.worker, release.reply, self.events.now
        assert reply is not None
        device, made_at = self.devices[worker], self._coding.reply_at(reply, now)
        device.blocked = made_at - device.arrived_at
        device.decoding = self._coding.received_seconds(reply)
        self.workers.lend(worker, reply, release.standing)
        size = reply.model.size if device.keys is None else device.keys.reply(reply.model)
        size += shared_bytes(reply.shared, self.sample_bytes) + note_bytes(reply.note)
        self._at(made_at, self.faults.if_alive(worker, partial(self.send_down, worker, size)))

    def send_down(self, worker: int, payload_bytes: int, now: float) -> None:
        """Send the reply that was lent to a worker, or resend it."""
        device = self.devices[worker]
        self._record.replied(worker, payload_bytes)
        arrived = self.faults.unless_frozen(worker, partial(self._receive, worker))
        transfer = device.down.send(payload_bytes, device.rng)
        device.down.bucket.carry(*transfer, link=self.downlink, done=arrived)

    def _receive(self, worker: int, now: float) -> None:
        """Handle the arrival of a reply at its worker."""
        device = self.devices[worker]
        if device.keys is not None and not device.keys.receive_reply():
            Misses(self, self.faults).reply(worker)
            return
        device.frozen_seconds, time = 0.0, now + device.decoding
        self._at(time, self.faults.unless_frozen(worker, partial(self._begin, worker), time=time))

    def _begin(self, worker: int, now: float) -> None:
        """Start training from a decoded reply; the push follows step and think time."""
        device = self.devices[worker]
        device.called(now)
        device.frozen_seconds = 0.0
        if device.think is None:
            device.think = device.draw_think()
        course = device.course(self._horizon())
        self.workers.begin(worker, now, think=device.think, course=course)
        device.computing = True
        config = self.server.half.config
        at_once = config.SENDS_MESSAGES or config.WAKES  # it may push as soon as it has a reply
        soonest = now if at_once else now + device.step_seconds * device.slow + device.think
        self._schedule_finish(worker, soonest)

    def _schedule_finish(self, worker: int, time: float) -> None:
        finish = self.faults.unless_frozen(worker, partial(self._finish, worker), time=time)
        self.events.at(time, finish)

    def _finish(self, worker: int, now: float) -> None:
        """Finish a cycle at the earliest possible push time; local steps may make it later."""
        device = self.devices[worker]
        reached = self.workers.finish(worker)
        if isinstance(reached, Paused):
            device.paused = reached
            return
        device.computing, device.step_seconds = False, reached.next_step
        if reached.update.steps:
            device.think = None
        push_at = reached.push_at
        if push_at + device.frozen_seconds > now:
            push = self.faults.unless_frozen(worker, partial(self._push, reached), time=push_at)
            self.events.at(push_at + device.frozen_seconds, push)
        else:
            self._push(reached, now)

    def _push(self, cycle: Cycle, now: float) -> None:
        """Start coding and sending an update."""
        device = self.devices[cycle.worker]
        if device.silent:
            return
        device.stood += device.frozen_seconds
        device.called_at, seconds = now, self._coding.push_seconds(cycle)
        if not seconds:
            self.push(cycle, now)
            return
        time = now + seconds - device.frozen_seconds  # time frozen by then is added on top
        push = self.faults.unless_frozen(cycle.worker, partial(self.push, cycle), time=time)
        self.events.at(now + seconds, push)

    def push(self, cycle: Cycle, now: float) -> None:
        """Send an update, or resend it."""
        device = self.devices[cycle.worker]
        if device.keys is not None:
            cycle = cycle._replace(payload_bytes=device.keys.push(cycle.update.payload))
        arrived = self.faults.if_alive(cycle.worker, partial(self._arrive, cycle))
        transfer = device.up.send(cycle.payload_bytes, device.rng)
        device.up.bucket.carry(*transfer, link=self.uplink, done=arrived)

    def _arrive(self, cycle: Cycle, now: float) -> None:
        """Handle the arrival of an update at the PS."""
        self.devices[cycle.worker].arrived_at = now
        serve = self.faults.if_alive(cycle.worker, partial(self._serve, cycle))
        self.enqueue(serve, now, coding_seconds=self._coding.served_seconds(cycle))

    def _serve(self, cycle: Cycle, now: float) -> None:
        """Serve a push. A refused push ends its worker, as in a live run."""
        worker, device = cycle.worker, self.devices[cycle.worker]
        if device.keys is not None and not device.keys.receive_push():
            Misses(self, self.faults).push(cycle)
            return
        try:
            effects = self.server.push(worker, cycle.sequence, update=cycle.update, now=now)
        except RejectedError as error:
            self.recorder.event(Rejected(f"w{worker}", error.message))
            self.faults.forget(worker)
            self.leave(worker)
            return
        if effects.accepted:
            self._record.accepted(cycle, device.timing(cycle))
        if effects.crashed:
            self.recorder.event(Crashed(f"w{worker}", cycle.sequence, now))
            self.recorder.event(self.timeline.crash(worker, planned=now, actual=now))
        self._carry_out(effects)
        self._silence_again(worker)

    def _silence_again(self, worker: int) -> None:
        """Correct the frame's books after a request that a worker sent before it was frozen."""
        if self.devices[worker].silent:
            self.silence(worker)

    def _horizon(self) -> float:
        """Return until when workers may be simulated: orders may arrive or paces change then."""
        pace = self.faults.horizon
        return min(self._tick_at, pace) if self.server.sends_orders else pace

    def _plan_tick(self, now: float) -> None:
        """Schedule the server's next tick; workers may be simulated up to it."""
        tick_at = self.server.next_tick(now)
        if tick_at == self._tick_at:
            return
        self._tick_at = tick_at
        if self._tick is not None:
            self._tick.cancel()
        self._tick = None if tick_at == inf else self.events.at(tick_at, self._call_tick)
        if self.server.sends_orders:
            self.extend_horizon()

    def extend_horizon(self) -> None:
        """Resume the workers that were computed up to the old horizon; the new one is later."""
        horizon = self._horizon()
        for worker, device in enumerate(self.devices):
            if device.computing and device.horizon < horizon:
                self._resume(worker, device)

    def _call_tick(self, now: float) -> None:
        self._tick_at, self._tick = -inf, None  # this tick is over: reschedule in any case
        self._carry_out(self.server.tick(now))

    def _resume(self, worker: int, device: DeviceModel) -> None:
        """Resume a worker up to the new horizon."""
        self.workers.resume(worker, device.course(self._horizon()))
        if device.paused is not None:
            wakes = self.server.half.config.WAKES  # new orders may make it earlier
            self._schedule_finish(worker, self.events.now if wakes else device.paused.step_ends)
            device.paused = None

    def _look(self, now: float) -> None:
        """Check whether an evaluation is due."""
        self._carry_out(NOTHING)

    def _is_due(self, now: float) -> bool:
        return self.server.version >= self._due.version and now >= self._due.time

    def _evaluate_snapshot(self, now: float) -> None:
        """Evaluate a snapshot, at no cost in virtual time, and notify the server."""
        if self._is_due(now):
            self._due = self.schedule.after(self.server.version, now)
            if self.schedule.seconds is not None:
                self.events.at(self._due.time, self._look)
        version, evaluation = self.server.version, self._evaluate(self.images)
        self.faults.evaluated(values_of(evaluation.metrics, evaluation.loss))
        measured = Measured(now, version, evaluation.loss)
        self._carry_out(self.server.measured(measured, metrics=evaluation.metrics, now=now))

    def _evaluate(self, images: Samples | None) -> Evaluation:
        """Evaluate the current model on some images, or on all (None)."""
        own = self.workers.evaluate(self.server.half.parameters, images=images)
        evaluation = replace(own, metrics={**own.metrics, **self._record.clients})
        evaluated = Evaluated(
            time_seconds=self.events.now,
            version=self.server.version,
            payload_up_bytes=self._record.applied_bytes,
            final=images is None,
            **vars(evaluation),
        )
        self.recorder.event(evaluated)
        self.keep(
            self.server.half.parameters,
            Measurement(evaluated.version, evaluated.time_seconds, own, evaluated.final),
        )
        return evaluation

    def _flush(self) -> None:
        """Record the updates that were applied together."""
        rows = np.array(self._rows, STREAMED if self._record.streamed else UPDATE)
        self._rows.clear()
        self.recorder.updates(rows)
