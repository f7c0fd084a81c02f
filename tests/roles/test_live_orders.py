"""Orders between replies over real sockets arrive at the same times as when simulated."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, Literal, cast

import numpy as np
import pytest

from testbed.algorithms.base import (
    AlgorithmConfig,
    Applied,
    Halves,
    Orders,
    ServerHalf,
    Stream,
    Ticked,
    Update,
    WorkerHalf,
)
from testbed.algorithms.frame.actions import Computed, Pull, Push, Step, Think, Work
from testbed.algorithms.frame.compute import OwnCompute
from testbed.algorithms.frame.effects import StandingOrders
from testbed.algorithms.frame.worker import Shard, Worker
from testbed.datasets import Prepared
from testbed.models import Mlp
from testbed.payloads import Dense, Vector
from testbed.roles.clock import EmulatedClock
from testbed.roles.device import Device
from testbed.roles.worker import drive, follow_orders
from testbed.rpc.codec import decode_push, encode_delivery
from testbed.rpc.messages import Delivery

RNG = np.random.default_rng(0)
DATA = Prepared(
    RNG.standard_normal((40, 1, 2, 2), dtype=np.float32),
    RNG.integers(0, 3, 40),
    RNG.standard_normal((6, 1, 2, 2), dtype=np.float32),
    RNG.integers(0, 3, 6),
    classes=3,
    source={},
)


class Ordering(AlgorithmConfig):
    """Orders a batch size, larger by one, at each of its times."""

    name: Literal["ordering"] = "ordering"
    at: tuple[float, ...]

    SENDS_ORDERS: ClassVar[bool] = True

    def halves(self) -> Halves:
        return Obedient, Commander


class Obedient(WorkerHalf[Ordering]):
    """Pushes every third step, with the times of its orders and steps as its note."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.steps, self.told = 0, dict[str, float]()

    def obey(self, orders: Orders, now: float) -> None:
        super().obey(orders, now)
        self.told[f"order {orders.batch_size}"] = now

    def step(self, gradient: Vector, samples: int, now: float) -> Update | None:
        self.steps += 1
        self.told[f"step {self.steps} of {samples}"] = now
        if self.steps % 3:
            return None
        told, self.told = self.told, {}
        return Update(Dense(gradient.copy()), self.version, samples=samples, steps=3, note=told)


class Commander(ServerHalf[Ordering]):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.left = list(self.config.at)
        self.notes: dict[int, Mapping[str, float]] = {}

    def push(self, worker: int, update: Update, now: float) -> Sequence[Applied]:
        self.notes[worker] = update.note
        self.version += 1
        return [Applied(worker, self.version - 1)]

    def next_tick(self, now: float) -> float:
        return self.left[0] if self.left else inf

    def tick(self, now: float) -> Ticked:
        self.left.pop(0)
        size = 5 + len(self.config.at) - len(self.left)
        return Ticked(orders=dict.fromkeys(range(self.workers), Orders(batch_size=size)))


class Alarming(Ordering):
    """Orders nothing; wakes its workers once, at 0.75."""

    WAKES: ClassVar[bool] = True

    def halves(self) -> Halves:
        return Sleeper, Commander


class Sleeper(Obedient):
    woken = False

    def alarm(self) -> float:
        return inf if self.woken else 0.75

    def wake(self, now: float) -> Update:
        self.told["wake"], self.woken = now, True
        nothing = Dense(np.zeros_like(self.parameters))
        return Update(nothing, self.version, samples=2, steps=1, note={})


class SharedTime:
    """The time of both workers and of the server, which passes only while both workers sleep.

    It stops at the moments of ``orders`` until these have arrived.
    """

    def __init__(self, orders: Sequence[float] = ()) -> None:
        self.now, self._awake, self._to_come = 0.0, 2, 0
        self._orders, self._ends = list(orders), list[float]()
        self._changed = threading.Condition()

    def sleep(self, seconds: float) -> None:
        with self._changed:
            ends = self.now + seconds
            self._ends.append(ends)
            self._count(awake=-1)
            assert self._changed.wait_for(lambda: self.now >= ends, timeout=60)
            self._ends.remove(ends)
            self._count(awake=+1)

    def end(self) -> None:
        """End a worker."""
        with self._changed:
            self._count(awake=-1)

    def arrived(self) -> None:
        """Count an order that has arrived."""
        with self._changed:
            self._to_come -= 1
            self._count()

    def _count(self, *, awake: int = 0) -> None:
        self._awake += awake
        asleep = [end for end in self._ends if end > self.now]
        if self._awake or self._to_come or len(asleep) < len(self._ends) or not asleep:
            return
        self.now = min(*self._orders[:1], *asleep, inf)
        if self._orders and self.now == self._orders[0]:
            del self._orders[0]
            self._to_come = 2
        self._changed.notify_all()


@dataclass
class Receiver:
    """A worker as the thread sees it that receives its orders."""

    worker: Worker
    time: SharedTime

    def order(self, standing: StandingOrders, now: float) -> None:
        self.worker.order(standing, now)
        self.time.arrived()


def work(stage: Any, index: int, time: SharedTime, *, step_seconds: float) -> None:
    """A worker as in its process, to the end of training."""
    network = Mlp(name="mlp", hidden=(5,)).build((1, 2, 2), 3, folder=Path())
    clock = EmulatedClock(1.0, lambda: time.now)
    half = stage.config.worker(network.layout, 2, rng=np.random.default_rng(index))
    shard = Shard(np.arange(20 * index, 20 * index + 20), np.random.default_rng(index))
    worker = Worker(half, Stream(2), shard, think=lambda: 0.0)
    with stage.connect(f"w{index}") as connection:
        device = Device(
            index=index,
            compute=OwnCompute(DATA, half.parameters, network.bind(half.parameters)),
            parameters=half.parameters,
            data=DATA,
            fingerprint=network.layout.fingerprint,
            size=network.layout.size,
            step=lambda: step_seconds,
            connection=connection,
            clock=clock,
            paced_first=True,
            wakes=worker.wakes,
            sleep=time.sleep,
        )
        device.join()
        follow_orders(connection, index, cast("Any", Receiver(worker, time)), clock)
        drive(worker.loop(), device)
    time.end()


def work_side_by_side(stage: Any, time: SharedTime) -> None:
    """Both workers, to the end of training."""
    threads = [
        threading.Thread(target=work, args=(stage, index, time), kwargs={"step_seconds": 0.5})
        for index in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert stage.half.notes.keys() == {0, 1}


@pytest.mark.slow
def test_orders_during_a_step_at_its_end_and_just_after_it(
    begin: Callable[..., Any],
) -> None:
    """Steps of 0.5 s. 6 at 0.25, inside the first: the second has 6. 7 at 0.9, inside the second:

    the third has 7. 8 at 1.55, a moment after the third and after its push: it is not in its note.
    """
    config, time = Ordering(at=(0.25, 0.9, 1.55)), SharedTime((0.25, 0.9))
    layout = Mlp(name="mlp", hidden=(5,)).build((1, 2, 2), 3, folder=Path()).layout
    stage = begin(layout, updates=2, config=config, steady=lambda: time.now)
    work_side_by_side(stage, time)
    for told in stage.half.notes.values():
        expected = {
            "order 6": 0.25,
            "step 1 of 2": 0.5,
            "order 7": 0.9,
            "step 2 of 6": 1.0,
            "step 3 of 7": 1.5,
        }
        assert told == pytest.approx(expected)


@pytest.mark.slow
def test_a_push_during_a_step_does_not_delay_its_end(begin: Callable[..., Any]) -> None:
    """Steps of 0.5 s, and a push at 0.75: the second step is active, and ends at 1.0, for a push
    takes no time here."""
    layout = Mlp(name="mlp", hidden=(5,)).build((1, 2, 2), 3, folder=Path()).layout
    time = SharedTime()
    stage = begin(layout, updates=4, config=Alarming(at=()), steady=lambda: time.now)
    work_side_by_side(stage, time)
    for told in stage.half.notes.values():
        expected = {"step 1 of 2": 0.5, "wake": 0.75, "step 2 of 2": 1.0, "step 3 of 2": 1.5}
        assert told == pytest.approx(expected)


def alone(**options: Any) -> Device:
    """A device without a server."""
    network = Mlp(name="mlp", hidden=(5,)).build((1, 2, 2), 3, folder=Path())
    at = np.zeros(network.layout.size, np.float32)
    return Device(
        index=0,
        compute=OwnCompute(DATA, at, network.bind(at)),
        parameters=at,
        data=DATA,
        fingerprint=network.layout.fingerprint,
        size=network.layout.size,
        **{"clock": EmulatedClock(1.0), **options},
    )


@pytest.mark.parametrize(
    ("samples", "slow", "seconds"), [(10, 1.0, 70), (30, 1.0, 110), (10, 2.0, 140)]
)
def test_a_step_takes_longer_with_a_larger_batch(samples: int, slow: float, seconds: float) -> None:
    """50 s and 2 s per sample: hours of emulated time that a worker sleeps through."""
    slept: list[float] = []
    device = alone(
        step=lambda: 50.0,
        each_sample=2.0,
        connection=None,  # a step makes no call
        slow=lambda: slow,
        paced_first=True,
        sleep=slept.append,
    )
    device.perform(Step(np.arange(samples), 0))
    (waited,) = slept
    assert seconds - 5 < waited <= seconds  # less the real time of the gradient


@dataclass
class FreezingTime:
    """A clock, and a device's sleep, in which it is frozen for a second from ``frozen_at`` on.

    As in the kernel, a sleep ends when it would have anyway, or when the device is thawed.
    """

    frozen_at: float
    now: float = 0.0

    def sleep(self, seconds: float) -> None:
        before, self.now = self.now, self.now + seconds
        if before <= self.frozen_at < self.now:
            self.now = max(self.now, self.frozen_at + 1)

    def stood(self) -> float:
        return float(self.now >= self.frozen_at + 1)

    def device(self, **options: Any) -> Device:
        clock = EmulatedClock(1.0, lambda: self.now)
        clock.start()
        times = {"clock": clock, "sleep": self.sleep, "stood": self.stood}
        return alone(connection=None, step=lambda: 2.0, paced_first=True, **times, **options)


@pytest.mark.parametrize("frozen_at", [0.5, 1.8])
def test_a_wait_and_a_step_take_longer_by_the_time_frozen(frozen_at: float) -> None:
    """Both take 2 s; the second freeze ends after they would have."""
    thinking, computing = FreezingTime(frozen_at), FreezingTime(frozen_at)
    thinking.device().perform(Think(2.0))
    assert thinking.now == pytest.approx(3.0)
    done = computing.device().perform(Step(np.arange(2), 0))
    assert done.now == computing.now == pytest.approx(3.0)


def test_what_is_left_of_a_step_does_not_shrink_while_it_is_frozen() -> None:
    """Woken after 1 s of a step of 2 s: at 2.0, as it was frozen from 0.5 to 1.5."""
    time = FreezingTime(0.5)
    device = time.device(wakes=lambda ends: 1.0 if time.now < 1.0 else None)
    woken = device.perform(Step(np.arange(2), 0))
    assert isinstance(woken, Computed)
    assert (woken.now, woken.left) == pytest.approx((2.0, 1.0))
    assert device.perform(Work(woken.left)).now == pytest.approx(3.0)


def test_time_held_before_the_training_is_not_blocked_time() -> None:
    """Held for 30 s, 0.5 s of them since the training began."""
    requests: list[bytes] = []

    def call(method: str, request: bytes, **_: Any) -> bytes:
        requests.append(request)
        return encode_delivery(Delivery(None, time=0.5, blocked=30.0)).data

    device = alone(step=None, connection=SimpleNamespace(call=call))
    device.perform(Pull())
    device.perform(Push(1, Update(Dense(device.parameters), 0, samples=2, steps=1)))
    pushed = decode_push(requests[-1], size=device.size)
    assert pushed.timing.blocked_seconds == 0.5
