"""Orders between replies, and how far ahead of them workers may be computed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import inf
from typing import Any, ClassVar, Literal

import pytest

from testbed.algorithms import AdaComp, Asgd
from testbed.algorithms.base import (
    AlgorithmConfig,
    Applied,
    Halves,
    Orders,
    Reply,
    ServerHalf,
    Ticked,
    Update,
    WorkerHalf,
)
from testbed.algorithms.frame.stop import StopRule
from testbed.errors import AlgorithmError
from testbed.payloads import Dense, Vector
from testbed.payloads.layout import Layout

LAYOUT = Layout(("weight", "bias"), ((5, 3), (3,)))
LATENCY = 0.01
CONFIGS = (Asgd(name="asgd"), AdaComp(name="adacomp", ratio=0.2))
World = Callable[..., Any]
Resumed = Callable[..., Any]


class Ordering(AlgorithmConfig):
    """Ticks at its own times, and orders a batch size that grows with each."""

    name: Literal["ordering"] = "ordering"
    at: tuple[float, ...] = ()
    unannounced: bool = False

    SENDS_ORDERS: ClassVar[bool] = True

    def halves(self) -> Halves:
        return Obedient, Commander


class Obedient(WorkerHalf[Ordering]):
    """Pushes every third step, with the times of its orders and steps as its note."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.steps, self.samples = 0, 0
        self.told: dict[str, float] = {}

    def obey(self, orders: Orders, now: float) -> None:
        super().obey(orders, now)
        self.told[f"order {orders.batch_size}"] = now

    def receive(self, reply: Reply, now: float) -> None:
        super().receive(reply, now)
        self.told["reply"] = now

    def step(self, gradient: Vector, samples: int, now: float) -> Update | None:
        self.steps += 1
        self.samples += samples
        self.told[f"step of {samples}"] = now
        if self.steps < 3:
            return None
        told, total = self.told, self.samples
        self.steps, self.samples, self.told = 0, 0, {}
        return Update(Dense(gradient.copy()), self.version, samples=total, steps=3, note=told)


class Commander(ServerHalf[Ordering]):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.moments = list(self.config.at)
        self.notes: list[tuple[int, Mapping[str, float]]] = []

    def push(self, worker: int, update: Update, now: float) -> Sequence[Applied]:
        self.notes.append((worker, update.note))
        self.version += 1
        return [Applied(worker, self.version - 1)]

    def next_tick(self, now: float) -> float:
        if self.config.unannounced and now < 0.9:
            return 100.0
        return self.moments[0] if self.moments else inf

    def tick(self, now: float) -> Ticked:
        self.moments.pop(0)
        size = 5 + len(self.config.at) - len(self.moments)
        return Ticked(orders=dict.fromkeys(range(self.workers), Orders(batch_size=size)))


@pytest.mark.parametrize("processes", [1, 2])
def test_orders_during_a_step_at_its_end_and_just_after_it(world: World, processes: int) -> None:
    """Steps of 1 s end at 1.01, 2.01 and 3.01; orders arrive 0.01 after their tick.

    6 at 0.51, during the first step, whose samples are taken: the second has 6. 7 at 2.01, at the
    end of the second: the third has 7. 8 just after the third's end, at 3.0101: the push is in
    transit, and the worker sees it before the reply of 3.03.
    """
    engine, _ = world(
        *(Ordering(at=(0.5, 2.0, 3.0001)), StopRule(updates=4)),
        step_seconds=[1.0, 1.0],
        think=lambda worker: lambda: 0.0,
        processes=processes,
    )
    assert isinstance(engine.server.half, Commander)
    first, second, third, fourth = engine.server.half.notes
    assert (first[0], second[0], third[0], fourth[0]) == (0, 1, 0, 1)
    assert (
        first[1]
        == second[1]
        == {
            "reply": pytest.approx(0.01),
            "order 6": pytest.approx(0.51),
            "step of 2": pytest.approx(1.01),
            "step of 6": pytest.approx(2.01),
            "order 7": pytest.approx(2.01),
            "step of 7": pytest.approx(3.01),
        }
    )
    assert (
        third[1]
        == fourth[1]
        == {
            "order 8": pytest.approx(3.0101),
            "reply": pytest.approx(3.03),
            "step of 8": pytest.approx(6.03),
        }
    )


def test_many_ticks_give_the_same_run_with_one_process_and_with_two(world: World) -> None:
    config = Ordering(at=tuple(0.37 * number for number in range(1, 60)))
    books = [
        world(config, StopRule(updates=40), step_seconds=(0.2, 0.5, 0.9), processes=count)
        for count in (1, 2)
    ]
    (one, first), (other, second) = books
    assert [row.tobytes() for row in first.rows] == [row.tobytes() for row in second.rows]
    assert isinstance(one.server.half, Commander)
    assert isinstance(other.server.half, Commander)
    assert one.server.half.notes == other.server.half.notes


def test_orders_at_an_unannounced_tick_are_refused(world: World) -> None:
    """The tick at 1.5 moves before that of 100 at w0's push, when w1 may already be computed."""
    with pytest.raises(AlgorithmError, match=r"orders reach w1 at 1.51\d+ s, before the tick at"):
        world(
            *(Ordering(at=(1.5,), unannounced=True), StopRule(updates=9)),
            step_seconds=[0.3, 5.0],
            think=lambda worker: lambda: 0.0,
        )


@pytest.mark.parametrize("processes", [1, 2])
def test_paused_workers_and_orders_in_transit_are_in_a_checkpoint(
    world: World, resumed: Resumed, processes: int
) -> None:
    config = Ordering(at=tuple(0.37 * number for number in range(1, 60)))
    play = partial(world, config, StopRule(updates=40), step_seconds=(0.2, 0.5, 0.9))
    (whole, _), *rest = resumed(
        play, slice(6, None, 13), again=partial(play, processes=processes)
    )  # after updates 7, 20 and 33
    assert [engine.server.half.notes for engine, _ in rest] == 3 * [whole.server.half.notes]
