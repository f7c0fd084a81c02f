"""One simulated worker: computes ahead from a reply to the next push, up to its horizon.

No orders reach a worker before its horizon: the time of the next planned event that may send it
orders. Up to the horizon, the worker may be computed at any real time before the virtual clock gets
there, in any process. A step that would end at or after the horizon is not started.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from math import inf
from typing import ClassVar, NamedTuple

from testbed.algorithms.base import Reply, Update
from testbed.algorithms.frame.actions import (
    Action,
    Arrived,
    Computed,
    Evaluate,
    Found,
    Loop,
    Passed,
    Pull,
    Push,
    Step,
    Take,
    Taken,
    Think,
    Work,
)
from testbed.algorithms.frame.compute import Gradient
from testbed.algorithms.frame.effects import NO_STANDING, StandingOrders
from testbed.algorithms.frame.record import Intake, shared_bytes
from testbed.algorithms.frame.worker import Worker
from testbed.models.clients import ClientSamples
from testbed.payloads import encodings
from testbed.payloads.notes import note_bytes
from testbed.simulation.learner import Asked, Learner
from testbed.simulation.streams import SimulatedStream
from testbed.values.state import PlainState, fitting, pack, put_back, unpack

TimedOrders = tuple[float, StandingOrders]
"""Emulated arrival time at the worker, and orders."""


class Course(NamedTuple):
    """How far a worker may be computed, and what it meets on the way.

    Attributes:
        horizon: the time up to which it may be computed.
        orders: orders between replies.
        slow: factor that multiplies the time of steps that start from now on.
    """

    horizon: float = inf
    orders: tuple[TimedOrders, ...] = ()
    slow: float = 1.0


TO_THE_END = Course()


class Cycle(NamedTuple):
    """A worker's result from one reply; the push is at emulated time ``push_at``.

    Attributes:
        compute_seconds: emulated seconds of its steps since its last push that contained steps.
        think_seconds: emulated seconds between computing and pushing.
        payload_bytes: size of the update in the scenario's encoding.
        saturated: number of values that the encoding clipped to its range.
        next_step: emulated seconds of the next step.
        intake: the record of the worker's stream; None without a stream, and for messages.
    """

    worker: int
    sequence: int
    push_at: float
    compute_seconds: float
    think_seconds: float
    update: Update
    payload_bytes: int
    saturated: int
    next_step: float
    intake: Intake | None = None


class Paused(NamedTuple):
    """A worker at its horizon; its next action would end at ``step_ends``.

    The action is a step, or waiting for samples.
    """

    worker: int
    step_ends: float


Progress = Generator[Asked, Gradient, Cycle | Paused]
"""Computes a worker up to its next push or its horizon; a gradient is lent until the next."""


@dataclass
class SimulatedWorker:
    """A worker and its virtual time; the clock's process draws its next think time.

    Attributes:
        draw_step: draws the emulated seconds of a training step, one step ahead.
        create: creates the worker in its initial state; ``process`` counts its processes from 0.
        stream: the source of its samples; None if all are available at once. The stream continues
            when the worker restarts, without its buffer.
        sample_bytes: size of a sample that it shares.
        each_sample: additional emulated seconds of a step per sample of its batch.
        client: the samples on which it evaluates models; None if it does not.
    """

    STATE: ClassVar = (
        "next_think",
        "draw_step",
        "_step",
        "_pending",
        "_now",
        "_compute",
        "_process",
    )
    index: int
    worker: Worker
    draw_step: Callable[[], float]
    create: Callable[..., Worker] | None = None
    stream: SimulatedStream | None = None
    sample_bytes: int = 0
    each_sample: float = 0.0
    client: ClientSamples | None = None
    next_think: float = 0.0
    _loop: Loop | None = None
    _paused: Step | Take | Work | Evaluate | None = None
    _pending: float = 0.0  # duration of what it waits with at its horizon
    _now: float = 0.0
    _compute: float = 0.0
    _process: int = 0  # number of restarts

    def __post_init__(self) -> None:
        self._attach()
        self._step = self.draw_step()

    def _attach(self) -> None:
        """Answer the worker's requests for think time and stream state here."""
        self.worker.think = lambda: self.next_think
        if self.stream is not None:
            self.worker.source, self.worker.look = None, self.stream.look

    def restart(self, now: float) -> None:
        """Restart from scratch; the worker's process ended at ``now``, and its buffer with it."""
        assert self.create is not None, "a worker that is restarted can be created again"
        self._process += 1
        self.worker = self.create(process=self._process)
        if self.stream is not None and (source := self.create().source) is not None:
            self.stream.restart(now, source)
        self._attach()
        self._loop, self._paused, self._now, self._compute = None, None, 0.0, 0.0

    def state(self) -> PlainState:
        """Return the state between two calls."""
        own = {name: getattr(self, name) for name in self.STATE}
        own |= {"begun": self._loop is not None, "paused": self._paused is not None}
        stream = None if self.stream is None else vars(self.stream)
        whole = {"worker": self.worker.state(), "own": own, "stream": stream}
        return pack(whole, self._given())

    def restore(self, packed: PlainState) -> None:
        """Restore the state of another worker of the same scenario.

        Raises:
            DataError: the state belongs to another scenario.
        """
        whole = unpack(packed, self._given())
        with fitting():
            self.worker.restore(whole["worker"])
            if self.stream is not None:
                put_back(self.stream, whole["stream"], vars(self.stream))
            own = whole["own"]
            begun, paused = own.pop("begun"), own.pop("paused")
            if type(own["draw_step"]) is not type(self.draw_step):
                raise TypeError(f"draw_step is a {type(own['draw_step']).__name__}")
            put_back(self, own, self.STATE)
            if begun:
                self._loop = self.worker.loop()
                action = next(self._loop)
                if paused and isinstance(action, Step | Take | Work | Evaluate):
                    self._paused = action

    def _given(self) -> dict[str, object]:
        """Return the objects of the stream that a state refers to but does not hold."""
        if self.stream is None:
            return {}
        return {"samples": self.stream.source.samples, "arrivals": self.stream.arrivals}

    def advance(
        self,
        reply: Reply,
        *,
        now: float,
        learner: Learner,
        course: Course,
        standing: StandingOrders = NO_STANDING,
    ) -> Progress:
        """Apply a reply at emulated time ``now`` and continue to the next push.

        ``standing`` holds the orders that came with it.
        """
        self._receive_orders(course)
        if self._loop is None:
            self._loop = self.worker.loop()
            if not isinstance(next(self._loop), Pull):
                raise AssertionError("a worker's loop begins with a pull")
        self._now = now
        action = self._loop.send(Arrived(now, reply, standing))
        return (yield from self._run(action, learner, course))

    def resume(self, course: Course, *, learner: Learner) -> Progress | None:
        """Continue to a later horizon; return None if the worker was not paused.

        The pending step has already started, and keeps its duration.
        """
        self._receive_orders(course)
        action, self._paused = self._paused, None
        if action is None:
            return None
        return self._run(action, learner, course, begun=isinstance(action, Step | Evaluate))

    def _receive_orders(self, course: Course) -> None:
        for at, standing in course.orders:
            self.worker.order(standing, at)

    def _run(
        self, action: Action, learner: Learner, course: Course, *, begun: bool = False
    ) -> Progress:
        """Continue to the next push; a step that has ``begun`` keeps its duration."""
        assert self._loop is not None
        horizon, _, slow = course
        think = 0.0
        while not isinstance(action, Push):
            match action:
                case Step() | Work() | Evaluate():
                    duration = self._pending if begun else self._duration(action, slow)
                    ends = self._now + duration
                    wakes_at = None
                    if not isinstance(action, Evaluate):
                        wakes_at = self.worker.wakes(min(ends, horizon))
                    until = ends if wakes_at is None else wakes_at
                    if until >= horizon:
                        self._paused, self._pending = action, duration
                        return Paused(self.index, until)
                    begun = False
                    self._compute += until - self._now
                    self._now = until
                    if isinstance(action, Step):
                        self._step = self.draw_step()
                        loss, gradient, _ = yield action, self.worker.half.parameters
                        done: Computed | Passed | Found = Computed(
                            until, gradient, ends - until, loss
                        )
                    else:
                        done = self._worked(action, learner, until, ends)
                    action = self._loop.send(done)
                case Think(seconds):
                    think += seconds
                    self._now += seconds
                    action = self._loop.send(Passed(self._now))
                case Take(count):
                    assert self.stream is not None, "a worker without a shard has a stream"
                    ends = self.stream.ready(count, self._now)
                    if ends >= horizon:
                        self._paused = action
                        return Paused(self.index, ends)
                    samples = self.stream.take(count, ends, since=self._now)
                    self._now = ends
                    action = self._loop.send(Taken(ends, samples))
                case Pull():
                    raise AssertionError("a worker pulls only once, at the beginning")
        return self._pushed(action, think)

    @property
    def _samples(self) -> ClientSamples:
        assert self.client is not None, "a worker that evaluates has samples for it"
        return self.client

    def _duration(self, action: Step | Work | Evaluate, slow: float) -> float:
        """Return the emulated seconds of what begins now."""
        match action:
            case Step():
                return (self._step + self.each_sample * len(action.samples)) * slow
            case Work():
                return action.seconds
            case Evaluate():
                return (self._samples.seconds or 0.0) * slow

    def _worked(
        self, action: Work | Evaluate, learner: Learner, until: float, ends: float
    ) -> Passed | Found:
        """Run an evaluation, or work, or the rest of it, until its end or the half is woken."""
        if isinstance(action, Work):
            return Passed(until, ends - until)
        at = self.worker.half.parameters
        return Found(until, learner.accuracy(at, self._samples, action.draw))

    def _pushed(self, action: Push, think: float) -> Cycle:
        """Return the cycle that ends with this push."""
        compute, update = self._compute, action.update
        intake = None
        if update.steps:
            self._compute = 0.0
            intake = None if self.stream is None else self.stream.take_intake()
        shared = shared_bytes(update.shared, self.sample_bytes)
        return Cycle(
            *(self.index, action.sequence, self._now, compute, think, update),
            payload_bytes=encodings.size(update.payload, self.worker.encoding)
            + shared
            + note_bytes(update.note),
            saturated=action.saturated,
            next_step=self._step,
            intake=intake,
        )
