"""Faults of simulated workers: times worked by hand, and the law of crashes."""

from __future__ import annotations

from collections.abc import Callable
from itertools import cycle
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from testbed import Run
from testbed.algorithms import AdaComp, Asgd, Bsp, CompAsgd, FixedAdacomm, PowerSgd
from testbed.algorithms.base import AlgorithmConfig
from testbed.algorithms.frame.stop import StopRule
from testbed.algorithms.frame.worker import Shard
from testbed.plan.written import read_plan
from testbed.reports.metrics.outline import STATES
from testbed.reports.metrics.replay import Replay
from testbed.scenario.experiment import Experiment
from testbed.simulation.build import build
from testbed.simulation.engine import Engine

World = Callable[..., Any]
Simulate = Callable[..., Run]
ASGD = Asgd(name="asgd")

TIMES = ("compute_seconds", "think_seconds", "transfer_seconds", "blocked_seconds")


def alone(world: World, updates: int, *faults: dict[str, Any]) -> Any:
    """One worker: a reply takes 0.01, a step 1, waits are 0.5 and 0 in turn, a push takes 0.01."""
    waits = cycle([0.5, 0.0])
    _, book = world(
        *(ASGD, StopRule(updates=updates)),
        step_seconds=[1.0],
        think=lambda worker: lambda: next(waits),
        faults=faults,
    )
    return book


@pytest.mark.parametrize(
    ("at", "lasts", "pushed"),
    [
        ("500ms", "2s", [3.52, 4.54]),  # in the step: everything after it is 2 s later
        ("1200ms", "1s", [2.52, 3.54]),  # in the wait
        # The push is in transit and arrives at 1.52; the reply arrives at 1.53 and is taken at
        # 2.515: 3.515 computed, 3.525 pushed.
        ("1515ms", "1s", [1.52, 3.525]),
    ],
)
def test_a_frozen_worker_continues_where_it_stopped(
    world: World, at: str, lasts: str, pushed: list[float]
) -> None:
    book = alone(world, 2, {"freeze": {"at": {"time": at}, "for": lasts}})
    assert book.column("time_seconds") == pytest.approx(pushed)
    # The last push is still to be transferred; all other time is in one of the columns.
    assert sum(sum(book.column(name)) for name in TIMES) == pytest.approx(pushed[-1] - 0.01)
    begun, ended = book.faults
    assert (begun.kind, begun.begins, begun.nodes) == ("freeze", True, ("w0",))
    assert begun.planned_seconds == begun.actual_seconds == pytest.approx(int(at[:-2]) / 1000)
    assert not ended.begins
    assert ended.actual_seconds == pytest.approx(begun.actual_seconds + int(lasts[:-1]))


def test_the_time_frozen_before_a_message_is_that_of_the_update(world: World) -> None:
    """PowerSGD pushes twice for an update; the worker is frozen for 2 s in its first step."""
    freeze = {"freeze": {"at": {"time": "500ms"}, "for": "2s"}}
    _, book = world(
        *(PowerSgd(name="powersgd"), StopRule(updates=2)), step_seconds=[1.0], faults=[freeze]
    )
    assert book.column("compute_seconds") == pytest.approx([3.0, 1.0])


def test_a_worker_that_is_killed_and_rejoins_starts_from_scratch(world: World) -> None:
    """Killed at 0.5 in its step, back at 2: 2.01 reply, 3.01 computed, 3.02 pushed.

    The wait that it had drawn is lost. The next: 3.03, 4.03, 4.53, 4.54.
    """
    book = alone(
        *(world, 2, {"kill": {"at": {"time": "500ms"}}}, {"join": {"at": {"time": "2s"}}}),
    )
    assert book.column("time_seconds") == pytest.approx([3.02, 4.54])
    assert book.column("sequence") == [1, 2]
    assert [fault.kind for fault in book.faults] == ["kill", "join"]


def test_a_restarted_worker_takes_other_samples_than_before(
    run_simulation: Simulate, digits: Path
) -> None:
    """A worker that is there for four steps at a time also uses the rest of its samples."""
    experiment = Experiment.open(run_simulation("short", "stop.updates=1").folder.path, data=digits)
    parameters = np.zeros(experiment.network.worker_layout.size, np.float32)
    workers, _ = build(experiment, 0, parameters, processes=1)
    subject, own = workers[0], experiment.shards[0]
    used, of_each = set[int](), []
    for _ in range(20):
        assert isinstance(subject.worker.source, Shard)
        of_each.append(subject.worker.source.take(len(own) // 3).tolist())
        used.update(of_each[-1])
        subject.restart(0.0)
    assert len(used) > 0.95 * len(own)
    assert of_each[0] == experiment.order(0, own).take(len(own) // 3).tolist()


def test_a_push_in_transit_is_lost_with_its_worker(world: World) -> None:
    """Pushed at 1.51, killed at 1.515: the first to arrive is from the second generation."""
    book = alone(
        *(world, 1, {"kill": {"at": {"time": "1515ms"}}}, {"join": {"at": {"time": "2s"}}}),
    )
    assert book.column("time_seconds") == pytest.approx([3.02])
    assert book.column("version_pulled") == [0]


def test_a_worker_joins_late_and_one_leaves(world: World) -> None:
    """w1 joins at 5 s: 5.01 reply, 6.01 computed. w0 leaves after eight updates."""
    engine, book = world(
        *(ASGD, StopRule(updates=12)),
        step_seconds=[1.0, 1.0],
        think=lambda worker: lambda: 0.0,
        faults=[
            {"join": {"at": {"time": "5s"}, "workers": ("w1",)}},
            {"leave": {"at": {"version": 8}, "workers": ("w0",)}},
        ],
    )
    first = next(row["time_seconds"] for row in book.rows if row["worker"] == 1)
    assert first == pytest.approx(6.02)
    assert [row["worker"] for row in book.rows][8:] == [1, 1, 1, 1]
    assert engine.server.version == 12


@pytest.mark.parametrize(
    ("at", "pushed"),
    [
        ("500ms", [2.51, 3.53]),  # pushed at 1.51, sent at 2.5; reply 2.52, computed 3.52
        # The push would arrive at 1.52, and does at 2.515 + 0.01; reply 2.535, computed 3.535.
        ("1515ms", [2.525, 3.545]),
        ("1525ms", [1.52, 3.545]),  # likewise the reply: at 2.525 + 0.01
    ],
)
def test_nothing_arrives_during_a_partition(world: World, at: str, pushed: list[float]) -> None:
    """For a second, or for two."""
    lasts = "2s" if at == "500ms" else "1s"
    book = alone(world, 2, {"partition": {"at": {"time": at}, "for": lasts}})
    assert book.column("time_seconds") == pytest.approx(pushed)
    assert [(one.kind, one.begins) for one in book.faults] == [
        *(("partition", True), ("partition", False)),
    ]


def test_a_changed_delay_applies_to_messages_sent_during_the_fault(world: World) -> None:
    """Pushed at 1.51, in transit for 0.2; reply 1.72, computed 2.72, pushed after its end."""
    link = {"at": {"time": "500ms"}, "for": "2s", "up": {"delay": "200ms"}}
    book = alone(world, 2, {"link": link})
    assert book.column("time_seconds") == pytest.approx([1.71, 2.73])


def test_a_step_started_while_its_worker_is_slow_takes_longer(world: World) -> None:
    """From 0.5 to 2.5: the second begins at 1.53 and takes 3 s, the third at 4.55 takes 1."""
    slow = {"at": {"time": "500ms"}, "for": "2s", "factor": 3.0}
    book = alone(world, 3, {"slow": slow})
    assert book.column("time_seconds") == pytest.approx([1.52, 4.54, 6.06])
    assert book.column("compute_seconds") == pytest.approx([1.0, 3.0, 1.0])


@pytest.mark.parametrize("processes", [1, 2])
def test_a_worker_is_slow_from_its_next_local_step(world: World, processes: int) -> None:
    """Steps end at 1.01 and 2.01; the third starts while they take twice as long: 4.01.

    The fourth starts at 4.03, after the fault: 5.03, 6.03, 7.03.
    """
    _, book = world(
        *(FixedAdacomm(name="fixed-adacomm", local_steps=3), StopRule(updates=2)),
        step_seconds=[1.0],
        think=lambda worker: lambda: 0.0,
        processes=processes,
        faults=[{"slow": {"at": {"time": "1500ms"}, "for": "1s", "factor": 2.0}}],
    )
    assert book.column("time_seconds") == pytest.approx([4.02, 7.04])
    assert book.column("compute_seconds") == pytest.approx([4.0, 3.0])


def test_a_killed_worker_returns_without_its_earlier_faults(world: World) -> None:
    """Slow and cut off from 0.5 to 9, killed at 1, back at 2: 3.01 computed and pushed.

    The wait of 0.5 that it had drawn is lost.
    """
    held = {"at": {"time": "500ms"}, "for": "8500ms"}
    book = alone(
        *(world, 1, {"partition": held}, {"slow": {**held, "factor": 5.0}}),
        *({"kill": {"at": {"time": "1s"}}}, {"join": {"at": {"time": "2s"}}}),
    )
    assert book.column("time_seconds") == pytest.approx([3.02])


def narrow(engine: Engine) -> None:
    """Let a reply, of 338 bytes, take the parameter server a second."""
    engine.downlink.capacity = 338.0


@pytest.mark.parametrize("kind", ["kill", "leave"])
def test_a_reply_to_a_worker_that_is_gone_takes_no_rate(world: World, kind: str) -> None:
    """Two replies at half the rate until w0 goes at 0.5 s, then w1's alone: a quarter until 1 s.

    Then w0's new one beside it: w1 has its reply at 1.51, and pushes at 2.52; w0's takes until
    2.26, pushed at 3.27. Half a second later w1 has its second, and pushes at 4.79.
    """
    _, book = world(
        *(ASGD, StopRule(updates=3)),
        step_seconds=[1.0, 1.0],
        think=lambda worker: lambda: 0.0,
        faults=[
            {kind: {"at": {"time": "500ms"}, "workers": ("w0",)}},
            {"join": {"at": {"time": "1s"}, "workers": ("w0",)}},
        ],
        planned=narrow,
    )
    assert book.column("worker") == [1, 0, 1]
    assert book.column("time_seconds") == pytest.approx([2.52, 3.27, 4.79])


def test_a_frozen_worker_still_receives_its_reply(world: World) -> None:
    """Two replies at half the rate, for 2 s, although w0 is frozen from 0.5 to 1.5 s."""
    freeze = {"freeze": {"at": {"time": "500ms"}, "for": "1s", "workers": ("w0",)}}
    _, book = world(
        *(ASGD, StopRule(updates=2)),
        step_seconds=[1.0, 1.0],
        think=lambda worker: lambda: 0.0,
        faults=[freeze],
        planned=narrow,
    )
    assert book.column("time_seconds") == pytest.approx([3.02, 3.02])


def test_a_worker_frozen_for_good_that_is_killed_trains_when_it_rejoins(world: World) -> None:
    """Frozen in its first step, back at 2 s: pushed at 3.02, beside w1 at 1.02, 2.04 and 3.06."""
    faults = [
        {kind: {"at": {"time": at}, "workers": ("w0",)}}
        for kind, at in (("freeze", "500ms"), ("kill", "1s"), ("join", "2s"))
    ]
    _, book = world(
        *(ASGD, StopRule(updates=4)),
        step_seconds=[1.0, 1.0],
        think=lambda worker: lambda: 0.0,
        faults=faults,
    )
    assert book.column("worker") == [1, 1, 0, 1]
    assert book.column("time_seconds") == pytest.approx([1.02, 2.04, 3.02, 3.06])


@pytest.mark.parametrize("processes", [1, 2])
def test_a_barrier_does_not_wait_for_killed_workers(world: World, processes: int) -> None:
    """Rounds of 1.02 + 0.01 s; w2 takes 4 s per step, until it is killed at 2 s."""
    _, book = world(
        *(Bsp(name="bsp"), StopRule(updates=4)),
        step_seconds=[1.0, 1.0, 4.0],
        think=lambda worker: lambda: 0.0,
        processes=processes,
        faults=[{"kill": {"at": {"time": "2s"}, "workers": ("w2",)}}],
    )
    assert book.column("worker") == [0, 1, 0, 1]
    # The first round closes with the kill; 2.01 reply, 3.01 computed, 3.02 the second.
    assert book.column("time_seconds") == pytest.approx([2.0, 2.0, 3.02, 3.02])


@pytest.mark.parametrize(
    "config",
    [ASGD, CompAsgd(name="comp-asgd"), AdaComp(name="adacomp", ratio=0.2)],
    ids=lambda config: config.name,
)
def test_frozen_workers_never_stop_an_asynchronous_algorithm(
    world: World, config: AlgorithmConfig
) -> None:
    engine, book = world(
        *(config, StopRule(updates=40)),
        step_seconds=[1.0] * 4,
        faults=[{"freeze": {"at": {"time": "3s"}, "workers": ("w1", "w2", "w3")}}],
    )
    assert engine.server.version == 40
    late = [row["worker"] for row in book.rows if row["time_seconds"] > 3.02]
    assert set(late) == {0}


def test_all_frozen_forever_is_stalled_and_all_frozen_temporarily_is_not(world: World) -> None:
    freeze = {"at": {"time": "3s"}}
    engine, _ = world(ASGD, StopRule(updates=40), faults=[{"freeze": freeze}])
    assert engine.server.finished.startswith("stalled: no worker is left that could push (3 silent")
    engine, _ = world(ASGD, StopRule(updates=40), faults=[{"freeze": {**freeze, "for": "9s"}}])
    assert engine.server.finished == "40 updates applied"


@pytest.mark.parametrize(("at", "updates"), [("500ms", 0), ("1015ms", 2), ("1025ms", 2)])
def test_a_barrier_stalls_wherever_a_worker_is_frozen_for_good(
    world: World, at: str, updates: int
) -> None:
    """In its first step; with its push in transit, which counts; with the reply in transit."""
    engine, _ = world(
        *(Bsp(name="bsp"), StopRule(updates=20, time=60.0)),
        step_seconds=[1.0, 1.0],
        think=lambda worker: lambda: 0.0,
        faults=[{"freeze": {"at": {"time": at}, "workers": ("w0",)}}],
    )
    assert engine.server.finished == "stalled: 1 worker waits for w0"
    assert engine.server.version == updates


CRASHES = """
name: crashes
seed: 3
runtime: simulated
algorithm: {adacomp: {ratio: 0.1}}
model: {mlp: {hidden: [8]}}
dataset: digits
workers:
  count: 200
  batch_size: 2
  think: {mean: 100ms}
  classes: {all: {speed: 10ms}}
faults: [{crash: {after_push: 0.01}}]
stop: {updates: 5000}
evaluate: {every: 2500, images: 50}
"""


@pytest.mark.slow
def test_crashes_are_binomial_and_final(
    run_simulation: Callable[..., Run],
) -> None:
    """5,000 draws with p = 0.01: 50 on average, with a standard deviation of sqrt(49.5) = 7.0."""
    run = run_simulation("crashes", text=CRASHES)
    events = run.events
    crashed = events[events["event"] == "crashed"]
    assert abs(len(crashed) - 50) < 4 * sqrt(5000 * 0.01 * 0.99)
    assert crashed["node"].is_unique
    updates = run.updates
    assert len(updates) == 5000
    for _, event in crashed.iterrows():
        own = updates[updates["node"] == event["node"]]
        assert own["sequence"].max() == event["sequence"]
        assert own["time_seconds"].max() == event["time_seconds"]
    summary = run.summarise()
    assert summary["faults"] == {"crash": len(crashed)}
    assert not any("lost" in reason for reason in summary["verdict"]["reasons"])


def test_all_crashed_is_stalled(run_simulation: Callable[..., Run]) -> None:
    run = run_simulation("dead", "faults=[{crash: {after_push: 0.5}}]", "stop.updates=5000")
    (finished,) = run.events[run.events["event"] == "finished"].to_dict("records")
    assert finished["stalled"]
    expected = "stalled: no worker is left that could push (5 silent, the others have left)"
    assert finished["reason"] == expected
    assert len(run.updates) < 100


def test_a_barrier_waits_for_a_crashed_worker_until_it_counts_as_dead(world: World) -> None:
    """All push at 1.02, and w2 crashes; the others push at 2.04, and wait until 1.02 + 5."""
    crash = {"crash": {"after_push": 1.0, "workers": ("w2",)}}
    config = Bsp(name="bsp")
    options: dict[str, Any] = {"think": lambda worker: lambda: 0.0, "faults": [crash]}
    engine, book = world(config, StopRule(updates=5), **options)
    assert engine.server.finished == "stalled: 2 workers wait for w2"
    assert len(book.rows) == 3

    def patient(engine: Any) -> None:
        engine.server.dead_after = 5.0

    engine, book = world(config, StopRule(updates=5), planned=patient, **options)
    assert book.column("worker") == [0, 1, 2, 0, 1]
    assert book.column("time_seconds") == pytest.approx([1.02] * 3 + [6.02] * 2)


def test_joins_and_leaves_are_recorded_as_in_a_live_run(
    run_simulation: Callable[..., Run],
) -> None:
    """Of three, one joins at 2 s, when another leaves."""
    faults = "[{join: {at: {time: 2s}, workers: [w2]}}, {leave: {at: {time: 2s}, workers: [w0]}}]"
    run = run_simulation("joins", "workers.count=3", f"faults={faults}")
    events = run.events[run.events["event"].isin(["joined", "started"])]
    assert list(events["event"]) == ["joined", "joined", "started", "joined"]
    assert list(events["node"].dropna()) == ["w0", "w1", "w2"]
    states = {}
    for moment in Replay(run, read_plan(run.folder)).moments():
        if (family := moment.families.get("testbed_worker_state")) is not None:
            for sample in family.samples:
                states[moment.emulated, sample.labels["worker"]] = STATES[int(sample.value)]
    last = max(at for at, _ in states)
    assert states[0.0, "w2"] == "absent"
    assert [states[last, name] for name in ("w0", "w1", "w2")] == ["left", "running", "running"]
