"""Workers that evaluate the models they pull: times, bytes and values by hand, and resumed."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from testbed import Run
from testbed.algorithms import DiLoCo, FedAvg
from testbed.algorithms.base import Applied, Update
from testbed.algorithms.frame.record import EVALUATED, Timing, UpdateRecord
from testbed.algorithms.frame.stop import StopRule
from testbed.errors import ScenarioError
from testbed.models.metrics.clients import distribution
from testbed.payloads import Dense
from testbed.scenario import Override, load_text
from testbed.scenario.experiment import Constant, Experiment
from testbed.simulation.worker import Cycle
from testbed.telemetry.entry import only
from testbed.telemetry.events import read_events
from testbed.telemetry.ps_events import ClientsEvaluated

World = Callable[..., Any]
Resumed = Callable[..., Any]
ALL = FedAvg(name="fedavg")
STOP = StopRule(updates=9)
SLOW = {"name": "slow", "workers": ["w1"], "at": {"time": "5s"}, "factor": 3}


def no_think(worker: int) -> Callable[[], float]:
    return Constant(0.0)


def test_an_evaluation_takes_time_and_its_result_counts_as_payload(world: World) -> None:
    """A step of a second and half a second before it; 18 float32 and a float64."""
    _, book = world(ALL, STOP, think=no_think, evaluation=0.5)
    assert book.column("compute_seconds") == [1.5] * 9
    assert book.column("payload_up_bytes") == [4 * 18 + 8] * 9
    times = book.column("time_seconds")
    assert times == pytest.approx([1.52] * 3 + [3.04] * 3 + [4.56] * 3)  # 10 ms each way
    assert [(one.time_seconds, one.version) for one in book.clients] == [
        (times[0], 0),
        (times[3], 3),
        (times[6], 6),
    ]
    for one in book.clients:
        assert [*one.accuracies] == ["w0", "w1", "w2"]
        assert one.distribution == distribution([*one.accuracies.values()])
    plain, _ = world(ALL, STOP, think=no_think)
    assert plain.events.now == pytest.approx(3.06)


def test_a_slower_device_evaluates_longer(world: World) -> None:
    """Thrice as long from 5 s on, but an evaluation that has begun keeps its time."""
    _, book = world(
        DiLoCo(name="diloco", local_steps=1),
        StopRule(updates=6),
        think=no_think,
        evaluation=10.0,
        faults=[SLOW],
    )
    assert book.column("compute_seconds") == [11, 13, 11, 11, 33, 11]


@pytest.mark.parametrize("config", [ALL, FedAvg(name="fedavg", fraction=0.5)])
@pytest.mark.parametrize("processes", [1, 2])
def test_resumed_from_any_checkpoint(
    world: World, resumed: Resumed, config: FedAvg, processes: int
) -> None:
    """Also while an evaluation waits for a fault that may change its pace."""
    more: dict[str, Any] = {"evaluation": 7.0, "faults": [SLOW], "think": no_think}
    play = partial(world, config, STOP, **more)
    (_, book), *rest = resumed(
        partial(play, processes=2), slice(None), again=partial(play, processes=processes)
    )
    assert book.clients
    assert len(rest) > 1


def cycle(worker: int, accuracy: object, *, version: int = 0) -> Cycle:
    update = Update(Dense(np.zeros(2, np.float32)), version, 1, note={EVALUATED: accuracy})
    return Cycle(worker, 1, 1.0, 1.0, 0.0, update, 16, 0, 1.0)


def test_late_updates_and_impossible_accuracies_do_not_count() -> None:
    record = UpdateRecord(lambda row: None)
    found = [np.array([one]) for one in (0.25, 0.75, 1.5)]
    for worker, one in enumerate([*found, np.zeros(3), "all"]):
        record.accepted(cycle(worker, one), Timing())
    record.accepted(cycle(5, np.array([0.0])), Timing())
    for worker in range(6):
        late = 3 if worker == 5 else 0
        record.enter(Applied(worker, worker, staleness=late), now=1.0, elapsed=1.0)
    assert record.end_round(1.0) == ClientsEvaluated(
        1.0, 0, distribution([0.25, 0.75]), {"w0": 0.25, "w1": 0.75}
    )
    assert record.end_round(2.0) is None


TEXT = """\
name: clients
runtime: simulated
algorithm: {fedavg: {learning_rate: 0.1}}
model: {mlp: {hidden: [4]}}
dataset: {digits: {partition: {dirichlet: {alpha: 0.3}}, held_out: 0.25}}
workers: {count: 4, batch_size: 10, classes: {all: {speed: {base: 10ms, each: 1ms}}}}
stop: {updates: 12}
evaluate: {every: 4, images: 50, metrics: [top1, {clients: {by: workers, cost: 0.5}}]}
"""


def test_a_run_has_the_values_of_the_last_round(
    run_simulation: Callable[..., Run], digits: Path
) -> None:
    """The first round evaluates the initial model. 20 ms for ten samples: 1 ms for half of one."""
    run = run_simulation("one", text=TEXT)
    first, *_, last = only(read_events(run.folder.events), ClientsEvaluated)
    evaluations = run.evaluations
    assert np.isnan(evaluations["clients_mean"].iloc[0])
    assert evaluations["clients_worst"].iloc[1] == first.distribution["clients_worst"]
    assert evaluations[list(last.distribution)].iloc[-1].to_dict() == last.distribution
    experiment = Experiment.open(run.folder.path, data=digits)
    half = experiment.server().half
    bound = experiment.network.bind(half.parameters)
    for index in range(4):
        client = experiment.client(index)
        assert client is not None
        assert client.accuracy(bound, half.parameters) == first.accuracies[f"w{index}"]
        assert client.seconds == pytest.approx(0.001 * len(client.held))
        assert not {*experiment.shards[index]} & {*experiment._split[index][1]}


def test_personalising_a_model_takes_as_long_as_its_steps(
    run_simulation: Callable[..., Run], digits: Path
) -> None:
    """Batches of 10 or more: 10 ms each, and 1 ms a sample; 0.5 ms a sample of the evaluation."""
    tuned = TEXT.replace("cost: 0.5", "cost: 0.5, fine_tune: {epochs: 2}")
    run = run_simulation("one", text=tuned)
    experiment = Experiment.open(run.folder.path, data=digits)
    for index, own in enumerate(experiment.shards):
        client = experiment.client(index)
        assert client is not None
        steps = 2 * (10 * (len(own) // 10) + len(own))
        assert client.seconds == pytest.approx((steps + len(client.held)) / 1000)


@pytest.mark.parametrize(
    ("setting", "found"),
    [
        (
            "algorithm=fedbuff",
            "evaluate.metrics.1.clients.by: found workers, with fedbuff, expected evaluator, or an "
            "algorithm with rounds of local training, such as fedavg",
        ),
        (
            "evaluate.metrics=[{clients: {by: workers}}]",
            "evaluate.metrics.0: found clients by workers, who evaluate earlier models than the "
            "evaluator, expected another metric first: the first one decides which model is saved "
            "as the best",
        ),
        (
            "evaluate.metrics=[top1, {clients: {cost: 0.5}}]",
            "evaluate.metrics.1.clients.cost: found 0.5, expected none: the evaluator takes no "
            "emulated time",
        ),
    ],
)
def test_what_cannot_be_evaluated_is_refused(setting: str, found: str) -> None:
    with pytest.raises(ScenarioError) as error:
        load_text(TEXT, overrides=[Override.parse(setting)])
    assert found in str(error.value)
