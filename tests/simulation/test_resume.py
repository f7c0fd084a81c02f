"""A simulation resumed from any of its checkpoints is bit-identical."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from testbed.algorithms import (
    AdaComp,
    Adsp,
    Bsp,
    Ddl,
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
from testbed.values.units import Duration

World = Callable[..., Any]
Resumed = Callable[..., Any]
ADACOMP = AdaComp(name="adacomp", ratio=0.2)
TRUNCATION = Truncation(name="truncation")
RULES = RoundRules(over_selection=1.5, deadline=Duration(2), late="damp", max_staleness=2)
PERSISTENCE = Persistence(name="persistence")
CONFIGS = (
    ADACOMP,
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
    world: World, resumed: Resumed, config: AlgorithmConfig, before: int, after: int
) -> None:
    play = partial(world, config, StopRule(updates=18))
    _, *rest = resumed(partial(play, processes=before), again=partial(play, processes=after))
    assert len(rest) >= 3  # of five or more: a round is three updates, and the last is the end


@pytest.mark.parametrize(
    ("rates", "policy"), [((3.0, 1.5, 2.2), TRUNCATION), ((3.0, 1.5, 0.0), PERSISTENCE)]
)
def test_streams_are_resumed(
    world: World, resumed: Resumed, rates: tuple[float, ...], policy: Policy
) -> None:
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
    play = partial(world, config, StopRule(updates=18), rates=rates, policy=policy)
    (_, book), *_ = resumed(play, slice(None, None, 2), again=partial(play, processes=2))
    assert sum(book.column("injected")) > 0


def test_a_stream_that_has_lost_its_buffer_is_resumed(world: World, resumed: Resumed) -> None:
    """Before w0 is killed, while it is absent, and after it has joined again."""
    kill = {"kill": {"at": {"time": "3500ms"}, "workers": ("w0",)}}
    join = {"join": {"at": {"time": "6s"}, "workers": ("w0",)}}
    play = partial(
        *(world, Ddl(name="ddl"), StopRule(updates=18)),
        rates=(3.0, 5.0, 4.0),
        policy=PERSISTENCE,
        faults=[kill, join],
    )
    (_, book), *_ = resumed(play, slice(None, None, 4), again=partial(play, processes=2))
    used = [row["stream_used"] for row in book.rows if row["worker"] == 0]
    assert len(set(used)) < len(used)  # it counts from 0 again


FAULTS: list[dict[str, Any]] = [
    {"crash": {"after_push": 0.1, "workers": ("w2",)}},
    {"freeze": {"at": {"time": "2s"}, "workers": ("w1",), "for": "3s", "every": "6s"}},
    {"kill": {"at": {"version": 6}, "workers": ("w0",)}},
    {"join": {"at": {"time": "15s"}, "workers": ("w0",)}},
    {"partition": {"at": {"time": "1s"}, "workers": ("w0", "w1"), "for": "2500ms"}},
    {"slow": {"at": {"time": "4s"}, "workers": ("w1",), "factor": 2.5, "for": "2s", "every": "5s"}},
    {"link": {"at": {"time": "5s"}, "workers": ("w2",), "up": {"rate": "4kbit", "delay": "1s"}}},
]


def test_pending_faults_are_resumed(world: World, resumed: Resumed) -> None:
    """Also during a freeze or a partition, with a slowed transfer and an absent worker."""
    play = partial(world, ADACOMP, StopRule(updates=24), faults=FAULTS)
    (_, book), *_ = resumed(play, slice(2, None, 4))
    assert [fault.kind for fault in book.faults].count("join") == 1


EARLY_AND_LATE = (
    {"crash": {"after_push": 0.1, "workers": ["w1"]}},
    {"freeze": {"workers": ["w0"], "at": {"time": "3s"}, "for": "4s"}},
    {"kill": {"workers": ["w2"], "at": {"version": 6}}},
    {"join": {"workers": ["w2"], "at": {"time": "15s"}}},
)


def test_faults_are_applied_once_before_or_after_a_checkpoint(
    world: World, resumed: Resumed
) -> None:
    play = partial(world, ADACOMP, StopRule(updates=24), faults=EARLY_AND_LATE)
    resumed(play, slice(1, None, 6))  # after updates 2, 8, 14 and 20
