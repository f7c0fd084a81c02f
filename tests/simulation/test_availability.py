"""Simulated workers that come and go according to traces: exact times, worked by hand."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Any

import numpy as np
import pytest

from testbed.algorithms import Adsp, Asgd, Bsp
from testbed.algorithms.base import Halves, Update, WorkerHalf
from testbed.algorithms.frame.stop import StopRule
from testbed.faults.population import Availability
from testbed.payloads import Dense, Vector
from testbed.scenario.experiment import Constant
from testbed.simulation.engine import Engine
from testbed.values.traces import Trace
from testbed.values.units import Duration

World = Callable[..., Any]
Resumed = Callable[..., Any]
ASGD = Asgd(name="asgd")
SHIFTS = Trace((0.0, 2.5), (1.0, 0.0), 4.0, repeats=True)
"""There until 2.5, away until 4, there until 6.5, away until 8."""


def no_think(worker: int) -> Constant:
    return Constant(0.0)


def play(world: World, updates: int, *availabilities: Availability, **options: Any) -> Any:
    """A step takes 1, a reply and a push 0.01 each, without think time."""
    return world(
        *(options.pop("config", ASGD), StopRule(updates=updates)),
        step_seconds=options.pop("step_seconds", [1.0]),
        think=no_think,
        availabilities=availabilities,
        **options,
    )


def test_a_worker_is_present_exactly_as_recorded(world: World) -> None:
    """Pushes at 1.02 and 2.04; the third step ends with the worker. At 4 it starts again:
    4.01 reply, 5.01 computed, 5.02 pushed, and 6.04; the same from 8 on."""
    _, book = play(world, 6, Availability(0, SHIFTS))
    assert book.column("time_seconds") == pytest.approx([1.02, 2.04, 5.02, 6.04, 9.02, 10.04])
    assert book.column("sequence") == [1, 2] * 3
    moments = [(one.kind, one.actual_seconds, one.planned_seconds) for one in book.faults]
    expected = (("leave", 2.5), ("join", 4.0), ("leave", 6.5), ("join", 8.0))
    assert moments == [(kind, at, at) for kind, at in expected]


def test_a_worker_absent_at_the_start_joins_on_time(world: World) -> None:
    """w1 is 3 s ahead: away until 1; then 1.01 reply, 2.01 computed, 2.02 pushed."""
    away = Availability(1, SHIFTS, 3.0)
    _, book = play(world, 4, away, step_seconds=[1.0, 1.0])
    assert book.column("time_seconds") == pytest.approx([1.02, 2.02, 2.04, 3.04])
    assert book.column("worker") == [0, 1, 0, 1]


def test_no_barrier_waits_for_absent_workers(world: World) -> None:
    """Rounds of 1.02 for both; at 2.5 w1 leaves, and w0's push at 3.06 is a round alone. Its
    next, at 4.08, waits for w1, which is back at 4 and has computed by 5.02."""
    _, book = play(
        world, 7, Availability(1, SHIFTS), config=Bsp(name="bsp"), step_seconds=[1.0, 1.0]
    )
    times = book.column("time_seconds")
    assert times == pytest.approx([1.02, 1.02, 2.04, 2.04, 3.06, 5.02, 5.02])
    assert book.column("worker") == [0, 1, 0, 1, 0, 0, 1]


def test_traces_continue_from_a_checkpoint(world: World, resumed: Resumed) -> None:
    there = (Availability(0, SHIFTS), Availability(1, SHIFTS, 3.0))
    options: dict[str, Any] = {"step_seconds": [1.0, 0.7]}
    resumed(partial(play, world, 12, *there, **options), slice(1, None, 3))


@pytest.mark.parametrize("earlier", [(), ("kill",)])
def test_an_adsp_worker_that_joins_late_leaves_the_others_at_their_rate(
    world: World, earlier: tuple[str, ...]
) -> None:
    """Γ = 10, d = 1: w0 commits at 10, 20, ...; w1 joins at 25, pulls by 25.01, and commits at
    35.01 and 45.01. At 30, before w0's third commit arrives, both have c = 2 of C = 3."""
    kill = [{kind: {"at": {"time": "5s"}, "workers": ("w1",)}} for kind in earlier]
    _, book = play(
        *(world, 7),
        config=Adsp(name="adsp", commit_rate=1, check_period=Duration(10)),
        step_seconds=[1.0, 1.0],
        faults=[*kill, {"join": {"at": {"time": "25s"}, "workers": ("w1",)}}],
    )
    assert book.column("worker") == [0, 0, 0, 1, 0, 1, 0]
    times = [10.01, 20.01, 30.01, 35.02, 40.01, 45.02, 50.01]
    assert book.column("time_seconds") == pytest.approx(times)


class NotFiniteAt(Asgd):
    """A worker pushes NaN if its step ends at this time."""

    at: float

    def halves(self) -> Halves:
        return NotFiniteWorker, super().halves()[1]


class NotFiniteWorker(WorkerHalf[NotFiniteAt]):
    def step(self, gradient: Vector, samples: int, now: float) -> Update:
        broken = now == pytest.approx(self.config.at)
        values = np.full_like(gradient, np.nan) if broken else gradient.copy()
        return Update(Dense(values), self.version, samples)


def test_a_worker_whose_push_was_refused_starts_from_scratch_when_it_returns(world: World) -> None:
    """w0's first push, at 1.02, is refused, and it ends, with its slowdown. At 4 it is back."""
    slow = {"at": {"time": "1015ms"}, "for": "9s", "factor": 5.0, "workers": ("w0",)}
    _, book = play(
        *(world, 8, Availability(0, SHIFTS)),
        config=NotFiniteAt(name="asgd", at=1.01),
        step_seconds=[1.0, 1.2],
        faults=[{"slow": slow}],
    )
    rows = [row for row in book.rows if row["worker"] == 0]
    assert [row["time_seconds"] for row in rows] == pytest.approx([5.02, 6.04])
    assert [row["sequence"] for row in rows] == [1, 2]


def lines_per_change(world: World, devices: int, **options: Any) -> float:
    """Lines of Python executed per arrival or departure of a device.

    From 1 back, all devices but the first arrive one after the other, and leave a second later.
    """
    once = Trace((0.0, 1.0, 2.0), (0.0, 1.0, 0.0), 2.0, repeats=False)
    carried_out = 0

    def count(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal carried_out
        carried_out += event == "line"
        return count

    def planned(engine: Engine) -> None:
        engine.events.at(0.5, lambda now: sys.settrace(count))
        engine.events.at(2.5, lambda now: sys.settrace(None))

    before = sys.gettrace()
    try:
        there = (Availability(number, once, number / 1000) for number in range(1, devices))
        seconds = [100.0] * devices
        play(world, 1, *there, step_seconds=seconds, planned=planned, **options)
    finally:
        sys.settrace(before)
    return carried_out / (devices - 1)


SLOWED = {"slow": {"at": {"time": "50s"}, "for": "1s", "factor": 2.0, "workers": ["w0"]}}


@pytest.mark.parametrize("faults", [(), (SLOWED,)], ids=["no faults", "a slow one is planned"])
def test_the_cost_of_a_change_is_independent_of_the_number_of_devices(
    world: World, faults: Any
) -> None:
    few, many = (lines_per_change(world, devices, faults=faults) for devices in (20, 320))
    assert many < 1.3 * few
