"""Links that follow traces: exact times, worked by hand."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from testbed.algorithms import Asgd
from testbed.algorithms.frame.stop import StopRule
from testbed.scenario.experiment import Durations
from testbed.scenario.traces import Following
from testbed.simulation.engine import Engine
from testbed.values.laws import Law
from testbed.values.traces import Trace

World = Callable[..., Any]
Resumed = Callable[..., Any]
ASGD = Asgd(name="asgd")


def thinking(worker: int) -> Durations:
    return Durations(Law("uniform", 0.5, 1.5), 1.0, np.random.default_rng(worker))


RATES = Trace((0.0, 2.0, 3.0), (8e6, 4e6, 2e6), 5.0, repeats=True)
DELAYS = Trace((0.0, 2.0), (0.2, 0.5), 2.0, repeats=False)


def play(world: World, *followings: Following, **options: Any) -> Any:
    """One worker: a step takes 1, a reply 0.01, a push as its trace says."""
    return world(
        *(ASGD, options.pop("stop", StopRule(updates=2))),
        step_seconds=[1.0],
        followings=followings,
        **{"think": lambda worker: lambda: 0.0, **options},
    )


def test_a_message_has_the_delay_at_the_time_it_is_sent(world: World) -> None:
    """Pushed at 1.01, in transit for 0.2; reply 1.22, pushed at 2.22, in transit for 0.5."""
    _, book = play(world, Following(0, "up", "delay", DELAYS, 0.0))
    assert book.column("time_seconds") == pytest.approx([1.21, 2.72])
    # Starting at 1.5 in the trace: 0.5 from 0.5 s on, also for the first.
    _, book = play(world, Following(0, "up", "delay", DELAYS, 1.5))
    assert book.column("time_seconds") == pytest.approx([1.51, 3.02])


def test_a_rate_changes_exactly_on_time(world: World) -> None:
    """Changes at 2, 3 and 5 s, and again from 5 s on; bytes per second are an eighth."""
    seen: list[tuple[float, float, float]] = []

    def planned(engine: Engine) -> None:
        device = engine.devices[0]

        def look(now: float) -> None:
            seen.append((now, device.up.bucket.rate, device.down.bucket.rate))

        for at in (1.9999, 2.0001, 2.9999, 3.0001, 4.9999, 5.0001, 7.0001):
            engine.events.at(at, look)

    follows = (
        Following(0, "up", "rate", RATES, 0.0),
        Following(0, "down", "rate", RATES, 1.0),  # a second earlier
    )
    play(world, *follows, planned=planned, stop=StopRule(updates=8))
    assert [(up, down) for _, up, down in seen] == [
        *((1e6, 5e5), (5e5, 2.5e5), (5e5, 2.5e5), (2.5e5, 2.5e5)),
        *((2.5e5, 1e6), (1e6, 1e6), (5e5, 2.5e5)),
    ]


def test_traces_are_resumed_from_a_checkpoint(world: World, resumed: Resumed) -> None:
    follows = (
        Following(0, "up", "delay", Trace((0.0, 2.0), (0.2, 0.5), 3.0, repeats=True), 0.3),
        Following(0, "down", "rate", RATES, 1.0),
    )
    options: dict[str, Any] = {"stop": StopRule(updates=9), "think": thinking}
    resumed(partial(play, world, *follows, **options), slice(1, None, 3))
