"""Does what a worker's loop asks for, in real seconds, and keeps the books of every cycle."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from testbed.algorithms.base import Reply, Samples, Update
from testbed.datasets import Prepared
from testbed.errors import NodeError
from testbed.frame.record import Timing
from testbed.frame.worker import (
    Action,
    Arrived,
    Computed,
    Outcome,
    Passed,
    Pull,
    Push,
    Step,
    Take,
    Think,
)
from testbed.models import Bound
from testbed.roles.clock import Clock
from testbed.rpc import messages, methods
from testbed.rpc._pb import ps_pb2
from testbed.rpc.client import Connection
from testbed.rpc.codec import ATTEMPT, decode_delivery, encode_push

DEADLINE_SECONDS = 10.0
"""Of one attempt of a call that nobody holds back."""


@dataclass
class Cycle:
    """Emulated seconds since the last push went out; see ``Timing``."""

    compute: float = 0.0
    late: float = 0.0
    think: float = 0.0


class Device:
    """One worker's hands.

    Args:
        index: number of the worker.
        bound: the network at the worker half's parameters.
        data: the training set.
        fingerprint: of the model's layout.
        size: number of parameters.
        speed: emulated time of one step, or None for as fast as it goes.
        connection: to the parameter server.
        clock: set by the first reply.
        paced_first: whether a step's whole time passes before its gradient is used, so that orders
            which come meanwhile are seen before that; else selection counts as part of the step.
        sleep: lets real seconds pass.
    """

    def __init__(
        self,
        index: int,
        *,
        bound: Bound,
        data: Prepared,
        fingerprint: int,
        size: int,
        speed: float | None,
        connection: Connection,
        clock: Clock,
        paced_first: bool = False,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._index = index
        self._bound = bound
        self._data = data
        self._fingerprint = fingerprint
        self._size = size
        self._speed = speed
        self._connection = connection
        self._clock = clock
        self._paced_first = paced_first
        self._sleep = sleep
        self._cycle = Cycle()
        self._transfer = self._blocked = 0.0  # of the call that brought the model
        self._step_began: float | None = None

    def join(self) -> None:
        """Take part in the training.

        Raises:
            RejectedError: the server does not want this worker.
            NodeError: the server cannot be reached.
        """
        request = ps_pb2.JoinRequest(worker=self._index, fingerprint=self._fingerprint)
        self._connection.call(
            methods.JOIN, request.SerializeToString(), deadline_seconds=DEADLINE_SECONDS
        )

    def leave(self, *, deadline_seconds: float = DEADLINE_SECONDS) -> None:
        """Take no part any more.

        Raises:
            NodeError: the server did not answer in time.
        """
        request = ps_pb2.LeaveRequest(worker=self._index)
        self._connection.call(
            methods.LEAVE,
            request.SerializeToString(),
            deadline_seconds=deadline_seconds,
            patience_seconds=0.0,
        )

    def perform(self, action: Action) -> Outcome:
        """Do what the loop asks for.

        Raises:
            RejectedError: the server refused a push.
            NodeError: the server cannot be reached, or does not keep to the contract.
        """
        self._finish_step()
        match action:
            case Pull():
                message = ps_pb2.PullRequest(worker=self._index).SerializeToString()
                return self._fetch(methods.PULL, message)
            case Take():
                raise AssertionError("a worker's samples come from its shard")
            case Step(samples):
                return self._step(samples)
            case Think(seconds):
                began = self._clock.steady()
                self._sleep(self._clock.real(seconds))
                self._cycle.think += self._clock.emulated(self._clock.steady() - began)
                return Passed(self._clock.now)
            case Push(sequence, update):
                message = encode_push(self._push(sequence, update)).data
                self._cycle = Cycle()
                return self._fetch(methods.EXCHANGE, message)

    def _step(self, samples: Samples) -> Computed:
        """A gradient. The step ends when the loop asks for something else: selection is part of it.

        What the loop is told of the time is the end of the step as the device class has it.
        """
        self._step_began = self._clock.steady()
        _, gradient = self._bound.loss_and_gradient(*self._data.batch(samples))
        if self._paced_first:
            self._finish_step()
            return Computed(self._clock.now, gradient)
        taken = self._clock.emulated(self._clock.steady() - self._step_began)
        return Computed(self._clock.now + max(0.0, (self._speed or 0.0) - taken), gradient)

    def _finish_step(self) -> None:
        """Wait for what the step just made really took less than the device class takes."""
        if self._step_began is None:
            return
        began, self._step_began = self._step_began, None
        taken = self._clock.emulated(self._clock.steady() - began)
        if self._speed is not None:
            self._cycle.late += max(0.0, taken - self._speed)
            if taken < self._speed:
                self._sleep(self._clock.real(self._speed - taken))
                taken = self._clock.emulated(self._clock.steady() - began)
        self._cycle.compute += taken

    def _push(self, sequence: int, update: Update) -> messages.Push:
        timing = Timing(
            compute=self._cycle.compute,
            late=self._cycle.late,
            think=self._cycle.think,
            transfer=self._transfer,
            blocked=self._blocked,
        )
        return messages.Push(self._index, sequence, self._fingerprint, update, timing)

    def _fetch(self, method: str, message: bytes) -> Arrived:
        """Call and take the model; without a deadline, for the algorithm may hold it back."""
        began = self._clock.steady()
        delivery = decode_delivery(self._connection.call(method, message, attempt_field=ATTEMPT))
        taken = self._clock.emulated(self._clock.steady() - began)
        self._blocked = delivery.blocked
        self._transfer = max(0.0, taken - delivery.blocked)
        if not self._clock.started:
            self._clock.start(delivery.time)
        if delivery.reply is not None:
            self._check(delivery.reply)
        return Arrived(self._clock.now, delivery.reply, delivery.standing)

    def _check(self, reply: Reply) -> None:
        """A reply must fit the model."""
        if flaw := reply.model.flaw(self._size):
            raise NodeError(f"the parameter server sent a model that does not fit: {flaw}")
