"""The worker's loop: pull, train, think, push, around an algorithm's worker half.

It is a generator: it yields the next action and is sent the outcome (``actions``).
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field, fields, replace
from math import inf, nan
from typing import Any, TypeVar

import numpy as np

from testbed.algorithms.base import Reply, Samples, Stream, Update, WorkerHalf, expect
from testbed.algorithms.frame.actions import (
    Action,
    Arrived,
    Computed,
    Evaluate,
    Found,
    Loop,
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
from testbed.algorithms.frame.breach import breach, checked_update, is_own
from testbed.algorithms.frame.effects import StandingOrders
from testbed.algorithms.frame.record import EVALUATED
from testbed.algorithms.parts.state import pack_half, restore_half
from testbed.payloads import Dense, Payload, Vector
from testbed.payloads.encodings import Encoding, as_sent
from testbed.payloads.notes import note_flaw
from testbed.values.seeds import seed_globals
from testbed.values.state import PlainState, fitting, pack, put_back, unpack

MOST_STEPS, MOST_EPOCHS = 100_000, 500
"""A worker of the user's own algorithm must push before it has trained for this many steps and
local epochs, or its training might never end. Averaging models once needs up to 300 epochs."""

_Own = TypeVar("_Own", Arrived, Taken, Computed, Passed, Found)


@dataclass
class Shard:
    """A worker's own training samples, shuffled again for every local epoch.

    The rest of an epoch, if shorter than a batch, begins the first batch of the next.
    """

    samples: Samples
    rng: np.random.Generator
    _order: Samples = field(init=False)

    def __post_init__(self) -> None:
        if len(self.samples) == 0:
            raise ValueError("the shard is empty, expected at least one training sample")
        self._order = self.rng.permutation(self.samples)

    def take(self, count: int) -> Samples:
        """Return the next ``count`` samples, without replacement within a local epoch."""
        while len(self._order) < count:
            self._order = np.concatenate([self._order, self.rng.permutation(self.samples)])
        taken, self._order = self._order[:count], self._order[count:]
        return taken


@dataclass
class Worker:
    """One worker.

    Attributes:
        stream: the half's information about its samples.
        source: the samples; None if the driver provides them.
        think: draws the emulated seconds between computing and pushing.
        look: returns the state of its stream at a time, if samples arrive during training.
        encoding: of its pushes; rounding is applied before any use of the values.
        draws: generator of the steps' seeds; None if steps have no randomness.
        local: number of parameters at the end of the half's that it keeps: they are not sent.
        evaluates: whether it evaluates every model that it receives.
        seeds: seeds the global generators before each call of the user's own half, which may
            draw from them; None for other halves.
    """

    half: WorkerHalf[Any]
    stream: Stream
    source: Shard | None
    think: Callable[[], float]
    encoding: Encoding = "raw"
    look: Callable[[float], Stream] | None = None
    draws: np.random.Generator | None = None
    seeds: np.random.Generator | None = None
    local: int = 0
    evaluates: bool = False
    _now: float = 0.0
    _sequence: int = 0
    _obeyed: int = 0
    _orders: list[tuple[float, StandingOrders]] = field(default_factory=list)
    _demanded: int | None = None  # samples requested and not yet taken
    _samples: Samples | None = None  # taken, with no gradient used yet
    _draw: int = 0  # of the step on them, or of the evaluation
    _stepping: bool = False  # whether that gradient is being computed
    _loss: float = nan  # of the step on them
    _held: Vector | None = None  # the gradient of a step that was interrupted
    _count: int = 0  # of its samples
    _left: float = 0.0  # its remaining seconds
    _woken: bool = False  # whether the half was woken for it
    _received: bool = False  # whether the last model is still to be evaluated
    _accuracy: float | None = None  # of the last model, until it is sent
    _working: bool = False  # whether the remaining seconds are passing

    def state(self) -> PlainState:
        """Pack the worker's position: before a step, or waiting for a reply.

        Raises:
            AlgorithmError: its half holds something that a checkpoint cannot store; names it.
        """
        own = {name: getattr(self, name) for name in self._own()}
        whole = {"half": pack_half(self.half), "own": own, "source": self.source}
        return pack(whole, self._given())

    def restore(self, packed: PlainState) -> None:
        """Continue from the state of another worker; a new ``loop`` starts there.

        Raises:
            DataError: the state belongs to a worker of another scenario.
        """
        whole = unpack(packed, self._given())
        with fitting():
            restore_half(self.half, whole["half"])
            source = whole["source"]
            if type(source) is not type(self.source):
                raise TypeError(f"its samples come from a {type(source).__name__}")
            self.source = source
            put_back(self, whole["own"], self._own())
            if self.source is not None and self._demanded is not None:
                raise TypeError("samples are missing that a source provides at once")

    def _own(self) -> list[str]:
        """Return the names of the fields that change, other than the half and the source."""
        given = ("half", "stream", "source", "think", "look")
        return [one.name for one in fields(self) if one.name not in given]

    def _given(self) -> dict[str, object]:
        return {} if self.source is None else {"samples": self.source.samples}

    def order(self, standing: StandingOrders, at: float) -> None:
        """Receive orders between replies, which arrive at emulated time ``at``.

        The half receives them before any later event, and not before the server gave them: live,
        the worker's clock is behind the server's by the transfer of its first model.
        """
        self._orders.append((max(at, standing.time), standing))

    def wakes(self, ends: float) -> float | None:
        """Return when to wake the half in the step that ends then; earlier orders come first."""
        if not self.half.config.WAKES:
            return None
        while True:
            at = max(self.half.alarm(), self._now)
            ordered = self._orders[0][0] if self._orders else inf
            if at < ends and at <= ordered:
                return at
            if ordered >= ends:
                return None
            self._pass_to(max(ordered, self._now))

    def loop(self) -> Loop:
        """Run the worker; see the module's table for what it yields and is sent.

        A restored worker begins with the step that was not computed, or the samples that were not
        taken, or else with a Pull, and continues with the reply that it waited for.
        """
        asked = self._stepping or self._working or self._received
        amid = asked or self._demanded is not None
        going_on = amid or (yield from self._exchange(Pull()))
        while going_on:
            if self._received:
                yield from self._evaluate()
            update, steps, samples = None, 0, 0
            while update is None:
                self._check_local(steps, samples)
                if self._held is None and not (yield from self._begin_step()):
                    return
                if self._held is None:  # no samples arrived, so there is no gradient
                    continue
                if self._left and not (yield from self._end_step()):
                    return
                gradient, self._held = self._held, None
                self.half.loss = self._loss
                update = self.half.step(gradient, self._count, self._now)
                steps, samples = steps + 1, samples + self._count
            seconds = self.think()
            if seconds > 0:
                yield from self._ask(Think(seconds), Passed)
            going_on = yield from self._send(update, "step")

    def _check_local(self, steps: int, samples: int) -> None:
        """Reject own code that trains locally without ever pushing."""
        few = steps < MOST_STEPS or samples < MOST_EPOCHS * (self.stream.own or 0)
        if self._sequence or few or not is_own(self.half):
            return
        what = f"step has returned None for the first {steps:,} gradients of w{self.half.index}"
        raise breach(self.half, "step", f"{what}, which has pushed nothing yet: return an Update")

    def _evaluate(self) -> Generator[Action, Outcome, None]:
        """Evaluate the model that has arrived."""
        found = yield from self._ask(Evaluate(self._draw), Found)
        self._received, self._accuracy = False, found.accuracy
        self._pass_to(found.now)

    def _next_draw(self) -> int:
        return 0 if self.draws is None else int(self.draws.integers(2**63))

    def _begin_step(self) -> Generator[Action, Outcome, bool]:
        """Take samples and compute their gradient; return whether training continues."""
        if self._samples is None:
            self._samples = yield from self._take()
            self._draw = self._next_draw()
            message = self.half.on_samples(self._samples, self._now)
            if message is not None and not (yield from self._send(message, "on_samples")):
                return False
        if not len(self._samples):
            self._samples = None
            return True
        self._stepping = True
        computed = yield from self._ask(Step(self._samples, self._draw), Computed)
        self._stepping, self._count, self._samples = False, len(self._samples), None
        self._left, self._woken, self._loss = computed.left, False, computed.loss
        self._held = computed.gradient.copy() if computed.left else computed.gradient
        self._pass_to(computed.now)
        return True

    def _end_step(self) -> Generator[Action, Outcome, bool]:
        """Wake the half, then wait for the rest of its step; return whether training continues.

        Pushes of the half during this time exclude the step, whose gradient is already computed, at
        the parameters from its beginning.
        """
        while self._left:
            update = None
            if not self._woken and self.half.alarm() <= self._now:  # orders may have put it off
                update = self.half.wake(self._now)
                if update is None and self.half.alarm() <= self._now:
                    again = f"its alarm is still at {self.half.alarm()}, expected after {self._now}"
                    raise breach(self.half, "alarm", again)
            self._woken = True
            if update is not None and not (yield from self._send(update, "wake")):
                return False
            self._working = True
            passed = yield from self._ask(Work(self._left), Passed)
            self._working, self._left, self._woken = False, passed.left, False
            self._pass_to(passed.now)
        return True

    def _take(self) -> Generator[Action, Outcome, Samples]:
        """Return the samples of the next step."""
        if self._demanded is None:
            stream, least = self.stream, self.stream.least
            if self.look is not None:
                stream = replace(self.look(self._now), least=least)
            asked = self.half.next_batch_size(stream, self._now)
            self._demanded = least if 0 < asked < least else asked
        count = self._demanded
        if self.source is not None:
            self._demanded = None
            return self.source.take(count)
        taken = yield from self._ask(Take(count), Taken)
        self._demanded = None
        self._pass_to(taken.now)
        return taken.samples

    def _send(self, update: Update, method: str) -> Generator[Action, Outcome, bool]:
        """Push the return value of a half's method; return whether training continues."""
        update = checked_update(self.half, method, update)
        if not update.steps and not self.half.config.SENDS_MESSAGES:
            what = "it sends an update without a step, but its config lacks SENDS_MESSAGES"
            raise breach(self.half, method, what)
        most = self.half.config.most_shared(self.stream.batch_size)
        if update.shared is not None and len(update.shared) > most:
            what = f"it shares {len(update.shared)} samples, but its config's most_shared is {most}"
            raise breach(self.half, method, what)
        if flaw := note_flaw(update.note, self.half.config.most_noted(self.half.layout.size)):
            raise breach(self.half, method, flaw)
        if self._accuracy is not None and update.steps:
            found, self._accuracy = np.array([self._accuracy]), None
            update = replace(update, note={**update.note, EVALUATED: found})
        self._sequence += 1
        payload = update.payload if not self.local else self._sent(update.payload, method)
        payload, saturated = as_sent(payload, self.encoding)
        if payload is not update.payload:
            update = replace(update, payload=payload)
        return (yield from self._exchange(Push(self._sequence, update, saturated)))

    def _exchange(self, action: Pull | Push) -> Generator[Action, Outcome, bool]:
        """Pass the reply to the half, which may answer with a message."""
        arrived = yield from self._ask(action, Arrived)
        if arrived.reply is None:
            return False
        self._pass_to(arrived.now)
        self._obey(arrived.standing, arrived.now)
        if arrived.reply.shared is not None and self._samples is not None:
            self._samples = np.concatenate([self._samples, arrived.reply.shared])
        reply = arrived.reply if not self.local else self._completed(arrived.reply)
        answer = self.half.receive(reply, arrived.now)
        if self.evaluates and answer is None and self._samples is None:
            self._received, self._draw = True, self._next_draw()
        del arrived, reply  # or the gradient would need memory in addition to theirs
        return True if answer is None else (yield from self._send(answer, "receive"))

    def _sent(self, payload: Payload, method: str) -> Payload:
        """Return an update without the part that stays here."""
        if not isinstance(payload, Dense):
            what = f"{method} returned a {type(payload).__name__}, expected a Dense: its model has "
            raise breach(self.half, method, f"{what}a part that stays at the workers")
        return Dense(payload.values[: -self.local])

    def _completed(self, reply: Reply) -> Reply:
        """Return a reply with the part of the model that stayed here."""
        received = expect(Dense, reply.model).values
        whole = np.concatenate([received, self.half.parameters[-self.local :]])
        return replace(reply, model=Dense(whole))

    def _pass_to(self, now: float) -> None:
        """Advance the clock to ``now`` and obey the orders received until then."""
        self._now = now
        while self._orders and self._orders[0][0] <= now:
            at, standing = self._orders.pop(0)
            self._obey(standing, at)

    def _obey(self, standing: StandingOrders, at: float) -> None:
        if standing.number > self._obeyed:
            self._obeyed = standing.number
            self._seed()
            self.half.obey(standing.orders, at)

    def _seed(self) -> None:
        if self.seeds is not None:
            seed_globals(int(self.seeds.integers(2**63)))

    def _ask(self, action: Action, outcome: type[_Own]) -> Generator[Action, Outcome, _Own]:
        """Yield an action and return its outcome."""
        sent = yield action
        if not isinstance(sent, outcome):
            found = f"{type(action).__name__} was sent {type(sent).__name__}"
            raise TypeError(f"{found}, expected {outcome.__name__}")
        self._seed()  # other code in this process may have drawn in the meantime
        return sent
