"""A worker half that is woken during a step, in the worker's loop driven by hand."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pytest

from testbed.algorithms import Bsp
from testbed.algorithms.base import Orders, Reply, Stream, Update, WorkerHalf
from testbed.algorithms.frame.actions import Arrived, Computed, Passed, Pull, Push, Step, Work
from testbed.algorithms.frame.effects import StandingOrders
from testbed.algorithms.frame.worker import Shard, Worker
from testbed.errors import AlgorithmError
from testbed.payloads import Dense, Vector
from testbed.payloads.layout import Layout

GRADIENT = np.ones(2, np.float32)


class Woken(Bsp):
    """An algorithm whose workers are woken."""

    WAKES: ClassVar[bool] = True


class Sleeper(WorkerHalf[Bsp]):
    """Pushes its sum whenever it is woken, at 1.5 and every second after that."""

    def __init__(self) -> None:
        layout, rng = Layout(("weight",), ((2,),)), np.random.default_rng(0)
        super().__init__(Woken(name="bsp"), layout, 1, rng)
        self.at = 1.5
        self.told: list[tuple[str, float]] = []
        self.gradients: list[Vector] = []

    def receive(self, reply: Reply, now: float) -> Update | None:
        self.told.append(("receive", now))
        return super().receive(reply, now)

    def step(self, gradient: Vector, samples: int, now: float) -> Update | None:
        self.told.append(("step", now))
        self.gradients.append(gradient.copy())
        return None

    def alarm(self) -> float:
        return self.at

    def wake(self, now: float) -> Update | None:
        self.told.append(("wake", now))
        self.at += 1.0
        total, self.gradients = sum(self.gradients, np.zeros(2, np.float32)), []
        return Update(Dense(total), self.version, samples=2)


def worker(half: Sleeper) -> Worker:
    shard = Shard(np.arange(6), np.random.default_rng(0))
    return Worker(half, Stream(2), shard, think=lambda: 0.0)


def reply(version: int = 0) -> Reply:
    return Reply(Dense(np.full(2, version, np.float32)), version)


def test_a_half_woken_during_a_step_continues_it_after_the_reply() -> None:
    """Steps of a second, pushes of 0.2 s. One ends at 1.0; the half is woken at 1.5, half a second
    before the end of the next, and pushes only the first. The second ends at 2.2, with the
    gradient that it started with."""
    half = Sleeper()
    subject = worker(half)
    loop = subject.loop()
    next(loop)
    assert isinstance(loop.send(Arrived(0.0, reply())), Step)
    assert subject.wakes(1.0) is None
    assert isinstance(loop.send(Computed(1.0, GRADIENT)), Step)
    assert subject.wakes(2.0) == 1.5
    lent = 3 * GRADIENT
    push = loop.send(Computed(1.5, lent, left=0.5))
    lent[:] = np.nan
    assert isinstance(push, Push)
    assert push.update.payload.arrays[0].tolist() == [1, 1]
    assert loop.send(Arrived(1.7, reply(1))) == Work(0.5)
    assert subject.wakes(2.2) is None
    assert isinstance(loop.send(Passed(2.2)), Step)
    assert half.told == [
        *(("receive", 0.0), ("step", 1.0), ("wake", 1.5), ("receive", 1.7), ("step", 2.2))
    ]
    assert [one.tolist() for one in half.gradients] == [[3, 3]]


def test_a_step_is_interrupted_at_every_wake_of_the_half() -> None:
    subject = worker(Sleeper())
    loop = subject.loop()
    next(loop)
    loop.send(Arrived(0.0, reply()))
    assert isinstance(loop.send(Computed(1.5, GRADIENT, left=2.0)), Push)
    assert loop.send(Arrived(1.5, reply(1))) == Work(2.0)
    assert subject.wakes(3.5) == 2.5
    assert isinstance(loop.send(Passed(2.5, left=1.0)), Push)
    assert loop.send(Arrived(2.5, reply(2))) == Work(1.0)
    assert isinstance(loop.send(Passed(3.5)), Step)


def test_an_interrupted_step_is_in_a_checkpoint() -> None:
    """While the rest of it passes, and while its push waits for a reply."""
    for waiting in (False, True):
        first = worker(Sleeper())
        loop = first.loop()
        next(loop)
        loop.send(Arrived(0.0, reply()))
        loop.send(Computed(1.5, 3 * GRADIENT, left=0.5))
        if not waiting:
            loop.send(Arrived(1.5, reply(1)))
        half = Sleeper()
        second = worker(half)
        second.restore(first.state())
        loop = second.loop()
        action = next(loop)
        if waiting:
            assert isinstance(action, Pull)
            action = loop.send(Arrived(1.5, reply(1)))
        assert action == Work(0.5)
        assert isinstance(loop.send(Passed(2.0)), Step)
        assert half.gradients[-1].tolist() == [3, 3]


def test_orders_during_a_step_change_when_the_half_is_woken() -> None:
    half = Sleeper()
    half.at = 9.0
    half.obey = lambda orders, now: setattr(half, "at", now + 0.25)  # type: ignore[method-assign]
    subject = worker(half)
    loop = subject.loop()
    next(loop)
    loop.send(Arrived(0.0, reply()))
    subject.order(StandingOrders(1, Orders(batch_size=3)), 0.5)
    assert subject.wakes(1.0) == 0.75


def test_orders_that_put_the_alarm_off_while_the_worker_sleeps() -> None:
    """Live they arrive during the sleep: the half is not woken at 1.5, but at 1.75."""
    half = Sleeper()
    half.obey = lambda orders, now: setattr(half, "at", 1.75)  # type: ignore[method-assign]
    subject = worker(half)
    loop = subject.loop()
    next(loop)
    loop.send(Arrived(0.0, reply()))
    assert subject.wakes(2.0) == 1.5
    subject.order(StandingOrders(1, Orders(batch_size=3)), 1.25)
    assert loop.send(Computed(1.5, GRADIENT, left=0.5)) == Work(0.5)
    assert subject.wakes(2.0) == 1.75
    assert isinstance(loop.send(Passed(1.75, left=0.25)), Push)


def test_orders_are_obeyed_at_the_servers_time_by_a_clock_that_is_behind() -> None:
    half = Sleeper()
    half.obey = lambda orders, now: half.told.append(("obey", now))  # type: ignore[method-assign]
    subject = worker(half)
    loop = subject.loop()
    next(loop)
    loop.send(Arrived(0.0, reply()))
    subject.order(StandingOrders(1, Orders(batch_size=3), time=1.0), 0.25)
    loop.send(Computed(0.5, GRADIENT))
    loop.send(Computed(1.25, GRADIENT))
    assert half.told == [("receive", 0.0), ("step", 0.5), ("obey", 1.0), ("step", 1.25)]


def test_a_half_that_asks_to_be_woken_again_at_once_breaks_the_contract() -> None:
    half = Sleeper()
    half.wake = lambda now: None  # type: ignore[method-assign]
    loop = worker(half).loop()
    next(loop)
    loop.send(Arrived(0.0, reply()))
    with pytest.raises(AlgorithmError, match=r"its alarm is still at .*, expected after"):
        loop.send(Computed(1.5, GRADIENT, left=0.5))
