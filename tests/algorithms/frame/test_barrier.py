"""Workers that wait: rounds, leaving, silence, stalls, ticks, orders, and errors in them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from typing import ClassVar, Literal

import numpy as np
import pytest

from testbed.algorithms import Asgd, Bsp, Ssp
from testbed.algorithms.base import (
    AlgorithmConfig,
    Applied,
    Halves,
    Measured,
    Orders,
    ServerHalf,
    Ticked,
    Update,
    WorkerHalf,
)
from testbed.algorithms.frame.effects import Effects, Release, StandingOrders
from testbed.algorithms.frame.server import Server
from testbed.algorithms.frame.stop import StopRule
from testbed.errors import AlgorithmError, RejectedError
from testbed.payloads import Dense, Vector
from testbed.payloads.layout import Layout

LAYOUT = Layout(("weight",), ((2,),))


def begun(config: AlgorithmConfig, *, workers: int = 3, stop: StopRule | None = None) -> Server:
    """All workers have joined and pulled a model of zeros."""
    half = config.server(
        LAYOUT, workers, parameters=np.zeros(2, np.float32), rng=np.random.default_rng(0)
    )
    server = Server(half, stop or StopRule())
    for worker in range(workers):
        server.join(worker)
    server.begin(0.0)
    for worker in range(workers):
        assert released(server.pull(worker, 0.0)) == [(worker, 0)]
    return server


def ones(version: int, value: float = 1.0) -> Update:
    return Update(Dense(np.full(2, value, np.float32)), version, samples=10)


def push(server: Server, worker: int, *, version: int, sequence: int = 1) -> Effects:
    return server.push(worker, sequence, update=ones(version, worker + 1.0), now=1.0)


def released(effects: Effects) -> list[tuple[int, int | None]]:
    return [(r.worker, None if r.reply is None else r.reply.version) for r in effects.releases]


def test_a_full_round_is_applied_at_once_in_worker_order() -> None:
    """w2, w0 and w1 push 3, 1 and 2: minus their sum over 3; all pulled version 0: staleness 0."""
    server = begun(Bsp(name="bsp"))
    for worker in (2, 0):
        effects = push(server, worker, version=0)
        assert effects.accepted
        assert (list(effects.applied), released(effects), server.version) == ([], [], 0)
    effects = push(server, 1, version=0)
    assert effects.applied == [Applied(0, 0), Applied(1, 1), Applied(2, 2)]
    assert sorted(released(effects)) == [(0, 3), (1, 3), (2, 3)]
    assert server.half.parameters.tolist() == [-2, -2]
    assert server.steps == 3


def test_a_worker_that_left_is_not_awaited_and_its_push_counts() -> None:
    """w1 has pushed 2 and leaves, w2 pushes 3: the round of w1 and w2 is minus 5 / 2."""
    server = begun(Bsp(name="bsp"))
    push(server, 1, version=0)
    assert server.leave(1, 1.0).applied == ()
    push(server, 2, version=0)
    effects = server.leave(0, 1.0)
    assert [one.worker for one in effects.applied] == [1, 2]
    assert released(effects) == [(2, 2)]  # w1 has left
    assert server.half.parameters.tolist() == [-2.5, -2.5]


@pytest.mark.parametrize("ticked", [True, False])
def test_a_leave_after_the_end_completes_no_round(ticked: bool) -> None:
    """w1 and w2 wait for w0 at the time limit of 10 s; the model stays as it was then."""
    server = begun(Bsp(name="bsp"), stop=StopRule(time=10.0))
    for worker in (1, 2):
        push(server, worker, version=0)
    if ticked:
        assert released(server.tick(10.0)) == [(1, None), (2, None)]
    effects = [server.leave(worker, 10.0) for worker in (0, 1, 2)]
    assert [list(one.applied) for one in effects] == [[], [], []]
    assert (server.version, server.half.parameters.tolist()) == (0, [0, 0])
    assert server.finished == "10 s of emulated time passed"


@pytest.mark.parametrize(("updates", "version"), [(3, 3), (4, 6), (6, 6)])
def test_training_stops_at_the_first_full_round(updates: int, version: int) -> None:
    server = begun(Bsp(name="bsp"), stop=StopRule(updates=updates))
    sequence = 0
    while not server.finished:
        sequence += 1
        at = server.version
        for worker in range(3):
            effects = push(server, worker, version=at, sequence=sequence)
    assert released(effects) == [(0, None), (1, None), (2, None)]
    assert server.version == version
    assert server.finished == f"{version} updates applied"
    assert not server.stalled


def test_training_stops_at_a_number_of_steps_or_at_a_loss() -> None:
    server = begun(Asgd(name="asgd"), stop=StopRule(steps=5, loss=0.5))
    update = Update(Dense(np.ones(2, np.float32)), 0, samples=40, steps=4)
    server.push(0, 1, update=update, now=1.0)
    server.measured(Measured(1.0, 1, 0.6), metrics={}, now=1.0)
    assert not server.finished
    server.push(1, 1, update=update, now=1.0)
    assert server.finished == "8 training steps are in the model"
    other = begun(Asgd(name="asgd"), stop=StopRule(loss=0.5))
    other.measured(Measured(1.0, 0, 0.5), metrics={}, now=1.0)
    assert other.finished == "loss 0.5000 reached 0.5"


def test_a_waiting_worker_cannot_push_again() -> None:
    """Its repeated push keeps waiting; a new number is refused: it has not pulled since."""
    server = begun(Bsp(name="bsp"))
    push(server, 0, version=0)
    repeat = push(server, 0, version=0)
    assert (repeat.accepted, released(repeat)) == (False, [])
    with pytest.raises(RejectedError, match="the worker's last pull brought none"):
        push(server, 0, version=0, sequence=2)
    push(server, 1, version=0)
    assert sorted(released(push(server, 2, version=0))) == [(0, 3), (1, 3), (2, 3)]


def test_a_silent_worker_stalls_those_that_wait_for_it() -> None:
    server = begun(Bsp(name="bsp"), workers=12)
    for worker in range(12):
        if worker != 3:
            push(server, worker, version=0)
    effects = server.silence(3, 2.0)
    assert server.stalled
    assert server.finished == "stalled: 11 workers wait for w3"
    assert released(effects) == [(worker, None) for worker in range(12) if worker != 3]
    assert list(effects.applied) == []


def test_a_silent_worker_does_not_stall_workers_that_can_push() -> None:
    server = begun(Bsp(name="bsp"))
    server.silence(2, 1.0)
    push(server, 0, version=0)
    assert not server.finished
    server.wake(2, 2.0)
    push(server, 1, version=0)
    assert not server.finished
    assert len(push(server, 2, version=0).applied) == 3
    asynchronous = begun(Asgd(name="asgd"))
    for worker in (0, 1):
        asynchronous.silence(worker, 1.0)
    assert released(push(asynchronous, 2, version=0)) == [(2, 1)]
    asynchronous.silence(2, 2.0)
    expected = "stalled: no worker is left that could push (3 silent, the others have left)"
    assert asynchronous.finished == expected


def test_a_silent_worker_gets_no_reply_until_it_continues() -> None:
    server = begun(Bsp(name="bsp"))
    push(server, 0, version=0)
    server.silence(0, 1.0)
    push(server, 1, version=0)
    assert sorted(released(push(server, 2, version=0))) == [(1, 3), (2, 3)]
    assert released(server.wake(0, 5.0)) == [(0, 3)]


def test_the_run_is_stalled_once_all_workers_have_left() -> None:
    server = begun(Asgd(name="asgd"), workers=2)
    server.leave(0, 1.0)
    assert not server.finished
    server.leave(1, 1.0)
    assert server.stalled
    assert server.finished.startswith("stalled: no worker is left that could push")


@pytest.mark.parametrize(
    ("waiting", "text"),
    [
        ({0}, "stalled: 1 worker waits for w1, w2, w3 and 2 more"),
        ({0, 1, 2, 3}, "stalled: 4 workers wait for w4 and w5"),
        ({0, 5}, "stalled: 2 workers wait for w1, w2, w3 and w4"),
    ],
)
def test_a_stall_names_the_awaited_workers(waiting: set[int], text: str) -> None:
    server = begun(Bsp(name="bsp"), workers=6)
    for worker in waiting:
        push(server, worker, version=0)
    for worker in set(range(6)) - waiting:
        server.silence(worker, 1.0)
    assert server.finished == text


def test_a_worker_may_lead_by_two_steps() -> None:
    """s = 2, M = 2: w0 continues without a pull after step one and waits after step two.

    w1's first step lets it pull, which brings min = 1; it is 1 ahead, and takes two more steps.
    """
    server = begun(Ssp(name="ssp", slack=2), workers=2)
    (first,) = push(server, 0, version=0).releases
    assert first.reply is not None
    assert (first.reply.version, first.reply.model.entries) == (0, 0)  # it trains its own copy
    assert released(push(server, 0, version=0, sequence=2)) == []
    assert list(server.half.awaited()) == [1]
    releases: Sequence[Release] = push(server, 1, version=0).releases
    replies = {r.worker: r.reply for r in releases}
    assert replies[0] is not None
    assert replies[1] is not None
    assert (replies[0].version, replies[0].model.entries) == (3, 2)
    assert replies[0].model.arrays[0].tolist() == [-2, -2]  # (1 + 1 + 2) / 2
    assert (replies[1].version, replies[1].model.entries) == (0, 0)  # w1 also pulls every 2 steps
    assert released(push(server, 0, version=3, sequence=3)) == []  # step 3, min 1
    (again,) = server.push(0, 3, update=ones(3), now=1.0).releases or [None]
    assert again is None
    assert server.leave(1, 1.0).releases[0].worker == 0


class Scripted(AlgorithmConfig):
    """A server half scripted by a test."""

    name: Literal["scripted"] = "scripted"

    SENDS_ORDERS: ClassVar[bool] = True

    def halves(self) -> Halves:
        return Deaf, Script


class Pliable(Scripted):
    OBEYS: ClassVar[frozenset[str]] = frozenset({"batch_size", "local_steps"})


class Unannounced(Scripted):
    SENDS_ORDERS: ClassVar[bool] = False


class Deaf(WorkerHalf[Scripted]):
    def step(self, gradient: Vector, samples: int, now: float) -> Update | None:
        return None


class Script(ServerHalf[Scripted]):
    """Holds all workers while it wants a loss, and ticks and applies as scripted."""

    at = inf
    wants = False
    ticked = Ticked()
    losses: tuple[Measured, ...] = ()
    twice = False

    def push(self, worker: int, update: Update, now: float) -> Sequence[Applied]:
        applied = [Applied(worker, self.version + place) for place in range(1 + self.twice)]
        self.version += len(applied)
        return applied

    def ready(self, worker: int) -> bool:
        return not self.wants

    def next_tick(self, now: float) -> float:
        return self.at

    def tick(self, now: float) -> Ticked:
        self.at = inf
        return self.ticked

    def wants_loss(self) -> bool:
        return self.wants

    def measured(self, measured: Measured) -> None:
        self.losses += (measured,)
        self.wants = self.wants and measured.time < 5.0


def scripted(config: Scripted | None = None) -> tuple[Server, Script]:
    server = begun(config or Scripted())
    assert isinstance(server.half, Script)
    return server, server.half


def test_orders_of_a_tick_are_numbered_and_each_field_stays_in_force() -> None:
    server, script = scripted(Pliable())
    script.at, script.ticked = 2.0, Ticked(orders={1: Orders(batch_size=3)})
    assert server.next_tick(1.0) == 2.0
    assert server.tick(1.5) == Effects(releases=[])  # too early: no tick is called
    effects = server.tick(2.0)
    assert effects.orders == {1: StandingOrders(1, Orders(batch_size=3), 2.0)}
    script.at, script.ticked = 3.0, Ticked(orders={1: Orders(local_steps=7)})
    both = StandingOrders(2, Orders(batch_size=3, local_steps=7), 3.0)
    assert server.tick(3.0).orders == {1: both}
    assert push(server, 1, version=0).releases[0].standing == both
    script.at = 4.0
    assert server.tick(4.0).orders == {1: both}  # nothing new: the number stays


def test_a_barrier_is_held_until_the_loss_of_its_model_is_known() -> None:
    server, script = scripted()
    script.wants = True
    effects = server.push(0, 1, update=ones(0), now=5.0)
    assert (effects.measure, released(effects)) == (True, [])
    assert not push(server, 1, version=0).measure  # already requested
    late = server.measured(Measured(1.0, 0, 2.0), metrics={}, now=6.0)  # an earlier evaluation
    assert (late.measure, released(late)) == (False, [])
    effects = server.measured(Measured(5.0, 1, 1.5), metrics={}, now=7.0)
    assert sorted(released(effects)) == [(0, 2), (1, 2)]
    assert [(m.time, m.version, m.loss) for m in script.losses] == [(1.0, 0, 2.0), (5.0, 1, 1.5)]


def test_workers_that_wait_for_a_loss_or_a_tick_are_not_stalled() -> None:
    server, script = scripted()
    script.wants = True
    for worker in range(3):
        push(server, worker, version=0)
    assert not server.finished
    other, script = scripted()
    script.wants, script.at = True, 9.0
    for worker in range(3):
        push(other, worker, version=0)
    script.losses = ()
    assert not other.finished


def test_an_announced_tick_may_be_late() -> None:
    server, script = scripted()
    script.at, script.ticked = 2.0, Ticked(orders={1: Orders(batch_size=3)})
    push(server, 0, version=0)
    server.push(1, 1, update=ones(0), now=2.5)
    assert server.tick(2.5).orders == {1: StandingOrders(1, Orders(batch_size=3), 2.5)}


def _tick_in_the_past(server: Server, script: Script) -> None:
    script.at = 0.5
    push(server, 0, version=0)


def _tick_again_and_again(server: Server, script: Script) -> None:
    script.at = 2.0
    script.tick = lambda now: Ticked()  # type: ignore[method-assign]
    server.tick(2.0)


def _applied_twice(server: Server, script: Script) -> None:
    script.twice = True
    push(server, 0, version=0)


def _wrong_version(server: Server, script: Script) -> None:
    script.version = 4
    script.push = lambda worker, update, now: [Applied(worker, 0)]  # type: ignore[method-assign]
    push(server, 0, version=0)


def _order_nobody_obeys(server: Server, script: Script) -> None:
    script.at, script.ticked = 2.0, Ticked(orders={0: Orders(commit_interval=3.0)})
    server.tick(2.0)


def _order_for_a_stranger(server: Server, script: Script) -> None:
    script.at, script.ticked = 2.0, Ticked(orders={8: Orders(batch_size=3)})
    server.tick(2.0)


def _order_unannounced(server: Server, script: Script) -> None:
    script.config = Unannounced()
    script.at, script.ticked = 2.0, Ticked(orders={0: Orders(batch_size=3)})
    server.tick(2.0)


@pytest.mark.parametrize(
    ("mistake", "text"),
    [
        (_tick_in_the_past, "its next tick is at 0.5, expected 1.0 or later"),
        (_tick_again_and_again, "its next tick is at 2.0, expected after 2.0"),
        (_applied_twice, "applied an update of w0 that is not pending"),
        (_wrong_version, "its version is 4 after 1 applied updates"),
        (_order_nobody_obeys, "orders commit_interval, which the config"),
        (_order_for_a_stranger, "orders to w8, which is absent"),
        (_order_unannounced, "orders between replies, but its config lacks SENDS_ORDERS"),
    ],
)
def test_a_half_that_breaks_the_contract_is_named(
    mistake: Callable[[Server, Script], None], text: str
) -> None:
    server, script = scripted()
    with pytest.raises(AlgorithmError) as caught:
        mistake(server, script)
    assert f"the server side of {type(script.config).__name__} " in caught.value.message
    assert text in caught.value.message
    assert caught.value.exit_code == 10
