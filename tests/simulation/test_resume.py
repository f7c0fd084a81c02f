"""A simulation resumed from any of its checkpoints is bit-identical."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from testbed.algorithms import (
    AdaComp,
    Adsp,
    Bsp,
    DiLoCo,
    FedAvg,
    FedBuff,
    FedOpt,
    FedProx,
    FixedAdacomm,
    PowerSgd,
    QuantDp,
    ScaDles,
    Scaffold,
    SlimDp,
    Ssp,
)
from testbed.algorithms.base import AlgorithmConfig
from testbed.algorithms.frame.stop import StopRule
from testbed.algorithms.parts.federated import RoundRules
from testbed.algorithms.parts.schedule import Cosine
from testbed.algorithms.selection import Oort
from testbed.datasets.streams import Persistence, Policy, Truncation
from testbed.simulation.checkpoint import state_of
from testbed.simulation.engine import Engine
from testbed.values.state import PlainState
from testbed.values.units import Duration

World = Callable[..., Any]
TRUNCATION = Truncation(name="truncation")
RULES = RoundRules(over_selection=1.5, deadline=Duration(2), late="damp", max_staleness=2)
PERSISTENCE = Persistence(name="persistence")
CONFIGS = (
    AdaComp(name="adacomp", ratio=0.2),
    Bsp(name="bsp"),
    Ssp(name="ssp", slack=2),
    FixedAdacomm(name="fixed-adacomm", local_steps=3),
    Adsp(name="adsp", check_period=Duration(4), epoch=Duration(20)),
    FedAvg(name="fedavg"),
    FedAvg(name="fedavg", fraction=0.6, select=Oort(name="oort"), rounds=RULES),
    FedProx(name="fedprox", local_epochs=3, stragglers=0.5, schedule=Cosine(over=6.0)),
    FedOpt(name="fedopt", server_optimizer="yogi", server_learning_rate=0.01),
    Scaffold(name="scaffold", fraction=0.6),
    DiLoCo(name="diloco", local_steps=3),
    FedBuff(name="fedbuff", local_steps=2, buffer_size=3),
    PowerSgd(name="powersgd", rank=1),
    QuantDp(name="quant-dp", momentum=0.5),
    SlimDp(name="slim-dp", core_rounds=3),
)


@pytest.mark.parametrize(
    "config",
    [
        pytest.param(
            config, id=config.name, marks=[] if config in CONFIGS[:2] else [pytest.mark.slow]
        )
        for config in CONFIGS
    ],
)
@pytest.mark.parametrize(("before", "after"), [(1, 2), pytest.param(2, 1, marks=pytest.mark.slow)])
def test_a_resumed_run_is_bit_identical(
    world: World, config: AlgorithmConfig, before: int, after: int
) -> None:
    saved: list[tuple[int, PlainState]] = []

    def save(engine: Engine) -> None:
        state = state_of(engine)
        state = PlainState(json.loads(json.dumps(state.tree)), state.arrays)
        saved.append((engine.server.version, state))

    stop = StopRule(updates=18)
    whole, book = world(config, stop, processes=before, save=save)
    assert len(saved) >= 5  # three workers: a round is three updates, and the last is the end
    for version, state in saved[:: len(saved) // 3]:
        engine, rest = world(config, stop, processes=after, state=state)
        assert engine.server.half.parameters.tobytes() == whole.server.half.parameters.tobytes()
        assert engine.events.now == whole.events.now
        there = [row.tobytes() for row in book.rows[version:]]
        assert [row.tobytes() for row in rest.rows] == there


@pytest.mark.parametrize(
    ("rates", "policy"), [((3.0, 1.5, 2.2), TRUNCATION), ((3.0, 1.5, 0.0), PERSISTENCE)]
)
def test_streams_are_resumed(world: World, rates: tuple[float, ...], policy: Policy) -> None:
    """During a round of three messages, with waiting samples; one stream may be silent."""
    config = ScaDles(
        name="scadles",
        min_batch=1,
        base_batch=2,
        alpha=0.5,
        beta=0.6,
        ratio=0.4,
        delta=0.9,
        decide="majority",
    )
    saved: list[tuple[int, PlainState]] = []

    def save(engine: Engine) -> None:
        state = state_of(engine)
        state = PlainState(json.loads(json.dumps(state.tree)), state.arrays)
        saved.append((engine.server.version, state))

    play = partial(world, config, StopRule(updates=18), rates=rates, policy=policy)
    whole, book = play(processes=1, save=save)
    assert sum(book.column("injected")) > 0
    for version, state in saved[::2]:
        engine, rest = play(processes=2, state=state)
        assert engine.server.half.parameters.tobytes() == whole.server.half.parameters.tobytes()
        there = [row.tobytes() for row in book.rows[version:]]
        assert [row.tobytes() for row in rest.rows] == there


FAULTS: list[dict[str, Any]] = [
    {"crash": {"after_push": 0.1, "workers": ("w2",)}},
    {"freeze": {"at": {"time": "2s"}, "workers": ("w1",), "for": "3s", "every": "6s"}},
    {"kill": {"at": {"version": 6}, "workers": ("w0",)}},
    {"join": {"at": {"time": "15s"}, "workers": ("w0",)}},
    {"partition": {"at": {"time": "1s"}, "workers": ("w0", "w1"), "for": "2500ms"}},
    {"slow": {"at": {"time": "4s"}, "workers": ("w1",), "factor": 2.5, "for": "2s", "every": "5s"}},
    {"link": {"at": {"time": "5s"}, "workers": ("w2",), "up": {"rate": "4kbit", "delay": "1s"}}},
]


def test_pending_faults_are_resumed(world: World) -> None:
    """Also during a freeze or a partition, with a slowed transfer and an absent worker."""
    saved: list[tuple[int, PlainState]] = []

    def save(engine: Engine) -> None:
        state = state_of(engine)
        state = PlainState(json.loads(json.dumps(state.tree)), state.arrays)
        saved.append((engine.server.version, state))

    config, stop = AdaComp(name="adacomp", ratio=0.2), StopRule(updates=24)
    whole, book = world(config, stop, save=save, faults=FAULTS)
    assert [fault.kind for fault in book.faults].count("join") == 1
    for version, state in saved[2::4]:
        engine, rest = world(config, stop, state=state, faults=FAULTS)
        assert engine.events.now == whole.events.now
        there = [row.tobytes() for row in book.rows[version:]]
        assert [row.tobytes() for row in rest.rows] == there
        assert engine.server.half.parameters.tobytes() == whole.server.half.parameters.tobytes()


EARLY_AND_LATE = (
    {"crash": {"after_push": 0.1, "workers": ["w1"]}},
    {"freeze": {"workers": ["w0"], "at": {"time": "3s"}, "for": "4s"}},
    {"kill": {"workers": ["w2"], "at": {"version": 6}}},
    {"join": {"workers": ["w2"], "at": {"time": "15s"}}},
)


def test_faults_are_applied_once_before_or_after_a_checkpoint(world: World) -> None:
    states: list[PlainState] = []
    config, stop = AdaComp(name="adacomp", ratio=0.2), StopRule(updates=24)
    faults = {"faults": EARLY_AND_LATE}
    whole, book = world(config, stop, **faults, save=lambda one: states.append(state_of(one)))
    for version in (2, 7, 12, 20):
        engine, rest = world(config, stop, **faults, state=states[version - 1])
        assert engine.server.half.parameters.tobytes() == whole.server.half.parameters.tobytes()
        there = [row.tobytes() for row in book.rows[version:]]
        assert [row.tobytes() for row in rest.rows] == there
