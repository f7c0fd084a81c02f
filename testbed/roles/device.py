"""Performs the actions of a worker's loop in real time, and accounts for every cycle's time."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from testbed.algorithms.base import Samples
from testbed.algorithms.frame.actions import (
    Action,
    Arrived,
    Computed,
    Evaluate,
    Found,
    Outcome,
    Passed,
    Pull,
    Push,
    Step,
    Take,
    Taken,
    Think,
    Work,
)
from testbed.algorithms.frame.compute import Compute
from testbed.algorithms.frame.record import Timing
from testbed.datasets import Prepared
from testbed.errors import NodeError, RejectedError
from testbed.models import BoundModel
from testbed.models.clients import ClientSamples
from testbed.payloads import Payload, Vector
from testbed.payloads.encodings import Encoding
from testbed.payloads.keyed import KeyCaches, UnknownKeysError
from testbed.roles.clock import EmulatedClock
from testbed.roles.stream import DeviceStream
from testbed.rpc import messages, methods
from testbed.rpc._pb import ps_pb2
from testbed.rpc.client import Connection
from testbed.rpc.codec import decode_delivery, encode_push
from testbed.rpc.shared import SharedSamples, assembled

DEADLINE_SECONDS = 10.0
"""For each attempt of a call that the server answers immediately."""


@dataclass(kw_only=True)
class Device:
    """Performs the actions of one worker's loop.

    Attributes:
        compute: computes its gradients.
        parameters: the worker half's.
        fingerprint: fingerprint of the model's layout.
        size: number of parameters.
        step: draws the emulated seconds of a step, or None for full speed.
        each_sample: emulated seconds that a step takes in addition per sample of its batch.
        clock: started by the first reply.
        paced_first: whether a step's whole time passes before its gradient is used, so that orders
            received during the step are seen first; else selection counts as part of the step.
        slow: returns the slowdown factor of a step that starts now.
        stood: returns for how many real seconds faults have frozen this process until now.
        encoding: encoding of its pushes.
        keys: the key caches of its connection, if the algorithm sends keys.
        wakes: when to wake the worker half in a step that ends at a given time, both emulated.
        sleep: sleeps for real seconds.
        gap: the longest pause of this process since the last call, in real seconds.
        stream: source of its samples; None for a shard.
        own: the algorithm's own kinds of payload.
        client: the samples on which it evaluates models; None if it does not.
        bound: the network at the worker half's parameters; None if another process computes.
    """

    index: int
    compute: Compute
    parameters: Vector
    data: Prepared
    fingerprint: int
    size: int
    step: Callable[[], float] | None
    connection: Connection
    clock: EmulatedClock
    each_sample: float = 0.0
    slow: Callable[[], float] = lambda: 1.0
    stood: Callable[[], float] = lambda: 0.0
    paced_first: bool = False
    encoding: Encoding = "raw"
    keys: KeyCaches | None = None
    wakes: Callable[[float], float | None] = lambda ends: None
    sleep: Callable[[float], None] = time.sleep
    gap: Callable[[], float] = lambda: 0.0
    stream: DeviceStream | None = None
    own: Sequence[type[Payload]] = ()
    client: ClientSamples | None = None
    bound: BoundModel | None = None

    def __post_init__(self) -> None:
        self._times: defaultdict[str, float] = defaultdict(float)  # of the next push, emulated
        self._since = self.clock.steady()  # start of the current lap
        self._active_since = self._active
        self._stepping = False
        self._pace = 0.0  # duration of the current step, emulated
        self._slow = 1.0  # its slowdown factor

    def join(self) -> None:
        """Join the training.

        Raises:
            RejectedError: the server refuses this worker.
            NodeError: the server cannot be reached.
        """
        request = ps_pb2.JoinRequest(worker=self.index, fingerprint=self.fingerprint)
        self.connection.call(
            methods.JOIN, request.SerializeToString(), deadline_seconds=DEADLINE_SECONDS
        )

    def leave(self, *, deadline_seconds: float = DEADLINE_SECONDS) -> None:
        """Leave the training.

        Raises:
            NodeError: the server did not answer in time.
        """
        request = ps_pb2.LeaveRequest(worker=self.index)
        self.connection.call(
            methods.LEAVE,
            request.SerializeToString(),
            deadline_seconds=deadline_seconds,
            patience_seconds=0.0,
        )

    def perform(self, action: Action) -> Outcome:
        """Perform an action of the loop.

        Raises:
            RejectedError: the server refused a push.
            NodeError: the server cannot be reached, or violates the contract.
        """
        self._finish_step()
        match action:
            case Pull():
                self._lap()  # time before the training does not count
                return self._arrived(self._call(methods.PULL, self._pull_request))
            case Take(count):
                assert self.stream is not None, "a worker without a shard has a stream"
                samples = self.stream.take(count)
                self._lap()  # the stream accounts for the wait
                return Taken(self.clock.now, samples)
            case Step() | Work() | Evaluate():
                return self._perform(action)
            case Think(seconds):
                self._let_pass(seconds)
                self._times["overslept_seconds"] += max(0.0, self._passed - seconds)
                self._times["think_seconds"] += self._lap()
                return Passed(self.clock.now)
            case Push():
                push = self._message(action)
                if action.update.steps:
                    self._times.clear()
                if self.keys is not None:
                    return self._exchange(push, self.keys)
                return self._arrived(self._push(push))

    def _message(self, action: Push) -> messages.PushMessage:
        """Build the message of an update."""
        update, stream = action.update, self.stream
        timing = Timing(**self._times)
        return messages.PushMessage(
            *(self.index, action.sequence, self.fingerprint, update, timing),
            gap_seconds=self.gap(),
            saturated=action.saturated,
            intake=stream.take_intake() if stream is not None and update.steps else None,
            shared=None if update.shared is None else self._with_pixels(update.shared),
        )

    def _with_pixels(self, samples: Samples) -> SharedSamples | None:
        """Add labels and pixels to the samples of a message; None if there are none."""
        if not len(samples):
            return None
        if self.stream is not None:
            return self.stream.with_pixels(samples)
        labels, pixels = self.data.train_labels[samples], self.data.train_images[samples]
        return assembled(samples, zip(labels, pixels, strict=True))

    def _perform(self, action: Step | Work | Evaluate) -> Outcome:
        match action:
            case Step():
                return self._step(action)
            case Work():
                return self._rest(action)
            case Evaluate(draw):
                return self._evaluate(draw)

    def _step(self, action: Step) -> Computed:
        """Compute a gradient. The step ends at the loop's next action, so it includes selection.

        The loop receives the time at which the device class ends the step.
        """
        self._stepping = True
        self._slow = self.slow()
        base = 0.0 if self.step is None else self.step()
        self._pace = (base + self.each_sample * len(action.samples)) * self._slow
        loss, gradient, queued = self.compute.gradient(action, self.parameters)
        self._times["queued_seconds"] += self.clock.emulated(queued)
        if self.paced_first:
            ends = self.clock.now + self._pace - self._passed
            if self.wakes(ends) is not None:
                self._stepping = False
                left = self._work(ends)
                return Computed(self.clock.now, gradient, left, loss=loss)
            self._finish_step()
            return Computed(self.clock.now, gradient, loss=loss)
        ends = self.clock.now + max(0.0, self._pace - self._passed)
        return Computed(ends, gradient, loss=loss)

    def _evaluate(self, draw: int) -> Found:
        """Evaluate the model, which takes as long as a step of that length would."""
        assert self.client is not None, "a worker that evaluates has samples for it"
        assert self.bound is not None, "and computes itself"
        self._stepping, self._slow = True, self.slow()
        self._pace = (self.client.seconds or 0.0) * self._slow
        accuracy = self.client.accuracy(self.bound, self.parameters, draw=draw)
        self._finish_step()
        return Found(self.clock.now, accuracy)

    def _rest(self, action: Work) -> Passed:
        """Perform the rest of a step."""
        left = self._work(self.clock.now + action.seconds)
        return Passed(self.clock.now, left)

    def _work(self, ends: float) -> float:
        """Continue a step that ends at ``ends``, until its end or until the half must be woken.

        Orders received during this time are seen afterwards.

        Returns:
            The remaining emulated seconds.
        """
        wakes_at, stood = self.wakes(ends), self.stood()
        self._let_pass((ends if wakes_at is None else wakes_at) - self.clock.now)
        self._times["compute_seconds"] += self._lap()
        ends += self.clock.emulated(self.stood() - stood)
        return 0.0 if wakes_at is None else max(0.0, ends - self.clock.now)

    def _finish_step(self) -> None:
        """Wait until the current step has taken as long as the device class takes."""
        if not self._stepping:
            return
        self._stepping = False
        if self.step is None:
            self._let_pass((self._slow - 1) * self._passed)
        else:
            left = self._pace - self._passed
            self._times["late_seconds"] += max(0.0, -left)
            self._let_pass(left)
        self._times["compute_seconds"] += self._lap()

    def _let_pass(self, seconds: float) -> None:
        """Sleep for emulated seconds, if positive; time for which it is frozen does not count."""
        left = self.clock.real(seconds)
        while left > 0:
            began, stood = self._active, self.stood()
            self.sleep(left)
            if self.stood() == stood:
                return
            left -= self._active - began

    def _exchange(self, push: messages.PushMessage, keys: KeyCaches) -> Arrived:
        """Push and receive the reply; repeat with core keys if either end does not know them."""
        try:
            delivery = self._push(push, keys)
        except UnknownKeysError:
            keys.up.drop()
            delivery = self._push(replace(push, attempt=1), keys)
        try:
            return self._arrived(_with_keys(delivery, keys))
        except UnknownKeysError:
            again = replace(push, attempt=2, wants_keys=True)
            return self._arrived(_with_keys(self._push(again, keys), keys))

    def _push(self, push: messages.PushMessage, keys: KeyCaches | None = None) -> messages.Delivery:
        """Push, without the core keys that the server knows."""
        if keys is not None:
            payload = keys.up.outgoing(push.update.payload)
            push = replace(push, update=replace(push.update, payload=payload))

        def request(attempt: int) -> bytes:
            return encode_push(replace(push, attempt=push.attempt + attempt), self.encoding).data

        return self._call(methods.EXCHANGE, request)

    def _pull_request(self, attempt: int) -> bytes:
        return ps_pb2.PullRequest(worker=self.index, attempt=attempt).SerializeToString()

    def _call(self, method: str, request: Callable[[int], bytes]) -> messages.Delivery:
        """Call, and account for its duration; no deadline, as the algorithm may hold the reply."""
        answer = self.connection.call(method, request(0), repeat=request)
        delivery = decode_delivery(answer, self.own)
        # A worker that joined before the others was held before the training began, too.
        self._times["blocked_seconds"] += min(delivery.blocked, delivery.time)
        self._times["transfer_seconds"] += max(0.0, self._lap() - delivery.blocked)
        return delivery

    def _arrived(self, delivery: messages.Delivery) -> Arrived:
        """Start the clock at the first reply, and check that the model fits."""
        if not self.clock.started:
            self.clock.start(delivery.time)
            self.gap()  # discard pauses before the training
        if delivery.reply is not None and (flaw := delivery.reply.model.flaw(self.size)):
            raise NodeError(f"the parameter server sent an invalid model: {flaw}")
        if delivery.shared is not None and self.stream is not None:
            self.stream.append(delivery.shared)
        return Arrived(self.clock.now, delivery.reply, delivery.standing)

    @property
    def _active(self) -> float:
        """Real seconds on a clock that stands still while a fault freezes this process."""
        return self.clock.steady() - self.stood()

    @property
    def _passed(self) -> float:
        """Emulated seconds since the last lap, less those for which it was frozen."""
        return self.clock.emulated(self._active - self._active_since)

    def _lap(self) -> float:
        """Start the next lap; return the emulated seconds of the last, including those frozen."""
        before, self._since, self._active_since = self._since, self.clock.steady(), self._active
        return self.clock.emulated(self._since - before)


def _with_keys(delivery: messages.Delivery, keys: KeyCaches) -> messages.Delivery:
    """Restore the core keys that a delivery left out.

    Raises:
        UnknownKeysError: the keys are unknown.
        NodeError: the keys do not match their signature.
    """
    if delivery.reply is None:
        return delivery
    try:
        model = keys.down.incoming(delivery.reply.model)
    except UnknownKeysError:
        raise
    except RejectedError as error:
        raise NodeError(f"the parameter server sent a damaged reply: {error.message}") from None
    keys.down.remember(model)
    return replace(delivery, reply=replace(delivery.reply, model=model))
