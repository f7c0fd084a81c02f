"""The virtual run: the frame's server, the pool's workers, the links between them, and one clock.

server releases a reply ─> down the links ─> the worker trains and thinks ─> up the links
     ^                                                                           │
     └──── served, when the PS has dealt with those that came before <───────────┘
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import inf

import numpy as np

from testbed.algorithms.base import Measured, Samples
from testbed.errors import RejectedError
from testbed.events.kinds import Crashed, Evaluated, Left, Rejected
from testbed.events.rows import STREAMED, UPDATE
from testbed.faults.timeline import Timeline
from testbed.frame.effects import Effects, Release
from testbed.frame.evaluation import Due, Schedule
from testbed.frame.record import UpdateRecord, shared_bytes
from testbed.frame.server import Server
from testbed.frame.service_queue import ServiceQueue
from testbed.frame.stop import unheard
from testbed.models import Evaluation
from testbed.models.saved import Measurement
from testbed.payloads import Vector
from testbed.scenario.durations import Codec
from testbed.scenario.traces import Following
from testbed.simulation.agenda import Agenda, Happening, Planned
from testbed.simulation.coding import Coding
from testbed.simulation.device import DeviceModel, buckets_of
from testbed.simulation.faults import Faults
from testbed.simulation.keys import Misses
from testbed.simulation.links import FairLink
from testbed.simulation.pool import Pool
from testbed.simulation.traces import Traces
from testbed.simulation.worker import Cycle, Paused
from testbed.telemetry.record import Recorder

BUFFERED_ROWS = 200


@dataclass
class Engine:
    """One simulated run.

    Attributes:
        workers: computes what the workers do.
        uplink: the PS's link, towards it.
        downlink: the PS's link, from it.
        images: indices of the test images looked at during the run.
        sample_bytes: of a training sample that a worker shares.
        recorder: is told everything.
        timeline: the faults that are to come.
        followings: the recordings that links follow.
        codec: how long coding takes.
        keep: is lent every model that was evaluated.
        checkpoints: when ``save`` is called, between two events; never if None.
    """

    server: Server
    workers: Pool
    devices: Sequence[DeviceModel]
    agenda: Agenda
    uplink: FairLink
    downlink: FairLink
    queue: ServiceQueue
    schedule: Schedule
    images: Samples
    recorder: Recorder
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
    _tick: Planned | None = None
    _save_at: Due = field(default_factory=Due)

    def __post_init__(self) -> None:
        self._record = UpdateRecord(self._rows.append, self.server.half.config.TAKES_STREAMS)
        self.faults = Faults(self, self.timeline)
        self._traces = Traces(self, self.followings)
        self._coding = Coding(self, self.codec)

    def run(self) -> None:
        """From the first pull to the last evaluation."""
        self.begin()
        self.go_on()

    def begin(self) -> None:
        """Those workers join and pull that are there at the beginning."""
        there = self.timeline.population.present(len(self.devices))
        for worker in there:
            self.server.join(worker)
        self.server.begin(0.0)
        self._traces.begin()
        self._plan_tick(0.0)  # a reply may take no time, and a worker be computed at once
        for worker in there:
            self.call(worker)
        self.faults.plan()
        self._carry_out(Effects())
        if self.checkpoints is not None:
            self._save_at = self.checkpoints.after(0, 0.0)

    def go_on(self) -> None:
        """To the last evaluation."""
        while not self.server.finished and self.agenda.advance():
            self.recorder.time_passed()
            if self.checkpoints is not None and not self.server.finished:
                self._save(self.checkpoints)
        self._flush()
        self._evaluate(None)

    @property
    def parts(self) -> dict[str, object]:
        """The parts with a state of their own, to which others refer."""
        return {
            "engine": self,
            "agenda": self.agenda,
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
        version, now = self.server.version, self.agenda.now
        if version >= self._save_at.version and now >= self._save_at.time:
            self._save_at = schedule.after(version, now)
            self._flush()
            self.save(self)

    def silence(self, worker: int) -> None:
        """A worker's device stands still from now on, and nobody is told but the frame's books."""
        self.devices[worker].silent = True
        self._carry_out(self.server.silence(worker, self.agenda.now))

    def call(self, worker: int) -> None:
        """A worker's process has begun, and calls the PS."""
        self.queue_up(self.faults.living(worker, partial(self._pull, worker)), self.agenda.now)

    def leave(self, worker: int) -> None:
        """A worker takes no part any more."""
        self._carry_out(self.server.leave(worker, self.agenda.now))

    def queue_up(self, serve: Happening, now: float, *, coding_seconds: float = 0.0) -> None:
        """A request has come: the PS deals with it once it is through with those before."""
        served = self.queue.take(now, coding_seconds=coding_seconds)
        self._at(served, serve)

    def _at(self, time: float, happening: Happening) -> None:
        """Let it happen then; at once if that is now."""
        if time > self.agenda.now:
            self.agenda.at(time, happening)
        else:
            happening(self.agenda.now)

    def _pull(self, worker: int, now: float) -> None:
        """The PS deals with a worker's first request."""
        self._carry_out(self.server.pull(worker, now))

    def _carry_out(self, effects: Effects) -> None:
        """Do what a call to the server has led to."""
        now = self.agenda.now
        for applied in effects.applied:
            self._record.enter(applied, now=now, elapsed=now / self.recorder.time_scale)
        if effects.applied:
            self.faults.reached(self.server.version)
        if len(self._rows) >= BUFFERED_ROWS:
            self._flush()
        for worker in effects.removed:
            self.faults.forget(worker)
            self.recorder.event(Left(f"w{worker}", unheard(self.server.dead_after)))
        for release in effects.releases:
            if release.reply is not None:
                self._release(release)
        for worker, standing in effects.orders.items():
            device = self.devices[worker]
            arrival = now + device.down.delay(device.rng)
            self.devices[worker].order(worker, standing, arrival)
        if effects.measure or (not self.server.finished and self._is_due(now)):
            self._examine(now)
        self._plan_tick(now)

    def _release(self, release: Release) -> None:
        """Send a reply on its way down."""
        worker, reply, now = release.worker, release.reply, self.agenda.now
        assert reply is not None
        device, made_at = self.devices[worker], self._coding.reply_at(reply, now)
        device.blocked = made_at - device.asked
        device.decoding = self._coding.received_seconds(reply)
        self.workers.lend(worker, reply, release.standing)
        keys = device.keys
        size = reply.model.size if keys is None else keys.reply(reply.model)
        size += shared_bytes(reply.shared, self.sample_bytes)
        self._at(made_at, self.faults.living(worker, partial(self.send_down, worker, size)))

    def send_down(self, worker: int, payload_bytes: int, now: float) -> None:
        """Send the reply that a worker was lent, or send it again."""
        device = self.devices[worker]
        self._record.replied(worker, payload_bytes)
        arrived = self.faults.awake(worker, partial(self._receive, worker))
        transfer = device.down.send(payload_bytes, device.rng)
        device.down.bucket.carry(*transfer, link=self.downlink, done=arrived)

    def _receive(self, worker: int, now: float) -> None:
        """A reply has arrived."""
        device = self.devices[worker]
        if device.keys is not None and not device.keys.takes_reply():
            Misses(self).reply(worker)
            return
        device.stood, time = 0.0, now + device.decoding
        self._at(time, self.faults.awake(worker, partial(self._begin, worker), time=time))

    def _begin(self, worker: int, now: float) -> None:
        """A reply can be used: the worker trains; it pushes once step and think are over."""
        device = self.devices[worker]
        device.called(now)
        device.stood = 0.0
        if device.think is None:
            device.think = device.draw_think()
        coming, device.horizon = device.take_coming(), self._horizon()
        self.workers.begin(
            worker, now, think=device.think, horizon=device.horizon, coming=coming, slow=device.slow
        )
        device.computing = True
        config = self.server.half.config
        at_once = config.SENDS_MESSAGES or config.WAKES  # it may push as soon as it has a reply
        step_seconds = device.step_seconds * device.slow
        soonest = now if at_once else now + step_seconds + device.think
        self._let_finish(worker, soonest)

    def _let_finish(self, worker: int, time: float) -> None:
        self.agenda.at(time, self.faults.awake(worker, partial(self._finish, worker), time=time))

    def _finish(self, worker: int, now: float) -> None:
        """The earliest moment of the push has come; with several local steps it may be later."""
        device = self.devices[worker]
        reached = self.workers.finish(worker)
        if isinstance(reached, Paused):
            device.paused = reached
            return
        device.computing, device.step_seconds = False, reached.next_step
        if reached.update.steps:
            device.think = None
        push_at = reached.push_at
        if push_at + device.stood > now:
            push = self.faults.awake(worker, partial(self._push, reached), time=push_at)
            self.agenda.at(push_at + device.stood, push)
        else:
            self._push(reached, now)

    def _push(self, cycle: Cycle, now: float) -> None:
        """Send an update on its way up."""
        device = self.devices[cycle.worker]
        if device.silent:
            return
        device.began, seconds = now, self._coding.push_seconds(cycle)
        if not seconds:
            self.push(cycle, now)
            return
        time = now + seconds - device.stood  # what it has stood still by then comes on top
        push = self.faults.awake(cycle.worker, partial(self.push, cycle), time=time)
        self.agenda.at(now + seconds, push)

    def push(self, cycle: Cycle, now: float) -> None:
        """Send an update, or send it again."""
        device = self.devices[cycle.worker]
        if device.keys is not None:
            cycle = cycle._replace(payload_bytes=device.keys.push(cycle.update.payload))
        arrived = self.faults.living(cycle.worker, partial(self._arrive, cycle))
        transfer = device.up.send(cycle.payload_bytes, device.rng)
        device.up.bucket.carry(*transfer, link=self.uplink, done=arrived)

    def _arrive(self, cycle: Cycle, now: float) -> None:
        """An update has arrived at the PS."""
        self.devices[cycle.worker].asked = now
        serve = self.faults.living(cycle.worker, partial(self._serve, cycle))
        self.queue_up(serve, now, coding_seconds=self._coding.served_seconds(cycle))

    def _serve(self, cycle: Cycle, now: float) -> None:
        """The PS deals with a push. One that is refused ends its worker, as it would live."""
        worker, device = cycle.worker, self.devices[cycle.worker]
        if device.keys is not None and not device.keys.takes_push():
            Misses(self).push(cycle)
            return
        try:
            effects = self.server.push(worker, cycle.sequence, update=cycle.update, now=now)
        except RejectedError as error:
            self.recorder.event(Rejected(f"w{worker}", error.message))
            self.timeline.population.gone(worker)
            self._carry_out(self.server.leave(worker, now))
            return
        if effects.accepted:
            self._record.accepted(
                worker,
                cycle.sequence,
                update=cycle.update,
                payload_bytes=cycle.payload_bytes,
                saturated=cycle.saturated,
                intake=cycle.intake,
                timing=device.timing(cycle),
            )
        if effects.crashed:
            self.recorder.event(Crashed(f"w{worker}", cycle.sequence, now))
            self.recorder.event(self.timeline.crash(worker, planned=now, actual=now))
        self._carry_out(effects)

    def _horizon(self) -> float:
        """How far workers may be computed: until orders may be sent, or steps take longer."""
        pace = self.faults.horizon
        return min(self._tick_at, pace) if self.server.sends_orders else pace

    def _plan_tick(self, now: float) -> None:
        """Note when the server wants its tick; workers may be computed that far."""
        tick_at = self.server.next_tick(now)
        if tick_at == self._tick_at:
            return
        self._tick_at = tick_at
        if self._tick is not None:
            self._tick.strike()
        self._tick = None if tick_at == inf else self.agenda.at(tick_at, self._call_tick)
        if self.server.sends_orders:
            self.go_beyond()

    def go_beyond(self) -> None:
        """The horizon has moved on: so may those workers that were computed as far as that."""
        horizon = self._horizon()
        for worker, device in enumerate(self.devices):
            if device.computing and device.horizon < horizon:
                self._resume(worker, device)

    def _call_tick(self, now: float) -> None:
        self._tick_at, self._tick = -inf, None  # it has come: whatever is next is news
        self._carry_out(self.server.tick(now))

    def _resume(self, worker: int, device: DeviceModel) -> None:
        """A worker's horizon has moved on: so may the worker."""
        device.horizon = self._horizon()
        coming, slow = device.take_coming(), device.slow
        self.workers.resume(worker, horizon=device.horizon, coming=coming, slow=slow)
        if device.paused is not None:
            wakes = self.server.half.config.WAKES  # perhaps sooner now, by its new orders
            self._let_finish(worker, self.agenda.now if wakes else device.paused.step_ends)
            device.paused = None

    def _look(self, now: float) -> None:
        """An evaluation may be due."""
        self._carry_out(Effects())

    def _is_due(self, now: float) -> bool:
        return self.server.version >= self._due.version and now >= self._due.time

    def _examine(self, now: float) -> None:
        """Evaluate a snapshot, which costs no virtual time, and let the server know."""
        if self._is_due(now):
            self._due = self.schedule.after(self.server.version, now)
            if self.schedule.seconds is not None:
                self.agenda.at(self._due.time, self._look)
        version, evaluation = self.server.version, self._evaluate(self.images)
        self.faults.evaluated(evaluation.top1)
        measured = Measured(now, version, evaluation.loss)
        self._carry_out(self.server.measured(measured, accuracy=evaluation.top1, now=now))

    def _evaluate(self, images: Samples | None) -> Evaluation:
        """Evaluate the model as it is, on some images or (None) on all."""
        evaluation = self.workers.examine(self.server.half.parameters, images=images)
        evaluated = Evaluated(
            time_seconds=self.agenda.now,
            version=self.server.version,
            payload_up_bytes=self._record.applied_bytes,
            final=images is None,
            **vars(evaluation),
        )
        self.recorder.event(evaluated)
        self.keep(
            self.server.half.parameters,
            Measurement(evaluated.version, evaluated.time_seconds, evaluation, evaluated.final),
        )
        return evaluation

    def _flush(self) -> None:
        self.recorder.updates(np.array(self._rows, STREAMED if self._record.streamed else UPDATE))
        self._rows.clear()
