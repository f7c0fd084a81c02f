"""A simulation that goes on from any of its checkpoints comes to the same bits."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from testbed.algorithms import AdaComp, Bsp, FixedAdacomm, Ssp
from testbed.algorithms.base import AlgorithmConfig
from testbed.frame.stop import StopRule
from testbed.simulation.engine import Engine
from testbed.values.state import PlainState

World = Callable[..., Any]
CONFIGS = (
    AdaComp(name="adacomp", ratio=0.2),
    Bsp(name="bsp"),
    Ssp(name="ssp", slack=2),
    FixedAdacomm(name="fixed-adacomm", local_steps=3),
)


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.name)
@pytest.mark.parametrize(("before", "after"), [(1, 2), (2, 1)])
def test_it_goes_on_to_the_same_bits(
    world: World, config: AlgorithmConfig, before: int, after: int
) -> None:
    saved: list[tuple[int, PlainState]] = []

    def save(engine: Engine) -> None:
        state = engine.state()
        state = PlainState(json.loads(json.dumps(state.tree)), state.arrays)
        saved.append((engine.server.version, state))

    stop = StopRule(updates=18)
    whole, book = world(config, stop, processes=before, save=save)
    assert len(saved) >= 5  # three workers: a round is three updates, and the last is the end
    for version, state in saved[:: len(saved) // 3]:
        engine, rest = world(config, stop, processes=after, state=state)
        assert engine.server.half.parameters.tobytes() == whole.server.half.parameters.tobytes()
        assert engine.agenda.now == whole.agenda.now
        there = [row.tobytes() for row in book.rows[version:]]
        assert [row.tobytes() for row in rest.rows] == there
