"""The distribution of the accuracy over the workers, by hand and in a run."""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt
from pathlib import Path

import numpy as np
import pytest

from testbed import Run
from testbed.errors import ScenarioError
from testbed.models.metrics import higher_is_better
from testbed.models.metrics.clients import Clients, distribution
from testbed.reports.run_measure import Measure
from testbed.scenario import Scenario, load_text
from testbed.scenario.dealing import split
from testbed.scenario.experiment import Experiment, load_model
from testbed.telemetry.entry import only
from testbed.telemetry.event_kinds import FaultApplied
from testbed.telemetry.events import read_events

TEXT = """
name: clients
runtime: simulated
algorithm: bsp
model: {mlp: {hidden: [4]}}
dataset: {digits: {partition: {dirichlet: {alpha: 0.3}}, held_out: 0.25}}
workers: {count: 5, batch_size: 4, classes: {all: {speed: 10ms}}}
stop: {updates: 20}
evaluate: {every: 10, images: 50, metrics: [top1, clients]}
"""


def scenario(held_out: float) -> Scenario:
    return load_text(TEXT.replace("[top1, clients]", "[top1]").replace("0.25", str(held_out)))


def test_the_distribution_by_hand() -> None:
    assert distribution([1.0, 0.5, 0.0, 0.5]) == {
        "clients_mean": 0.5,
        "clients_deviation": sqrt(0.5 / 4),
        "clients_worst": 0.0,
        "clients_jain": 4 / (4 * 1.5),
    }
    twenty = distribution([0.1, 0.3, *[1.0] * 18])
    assert twenty["clients_worst"] == pytest.approx(0.2)  # of two workers
    assert distribution([0.0, 0.0])["clients_jain"] == 1


def test_the_deviation_is_better_if_lower() -> None:
    metrics = [Clients(name="clients")]
    assert higher_is_better("clients_worst", metrics)
    assert not higher_is_better("clients_deviation", metrics)


def test_the_final_values_are_of_held_out_samples() -> None:
    title = Measure("final_clients_worst").title
    assert title == "final clients' accuracy, worst tenth, all held-out samples"
    assert Measure("final_top5").title == "final top-5 accuracy, all test samples"


def test_samples_are_held_out_of_training() -> None:
    shards = [np.arange(8), np.arange(8, 10), np.arange(10, 30)]
    found = split(scenario(0.25), shards)
    assert [len(held) for _, held in found] == [2, 1, 5]
    for own, parts in zip(shards, found, strict=True):
        assert sorted(np.concatenate(parts)) == own.tolist()
    again = split(scenario(0.25), shards)
    assert [held.tolist() for _, held in again] == [held.tolist() for _, held in found]
    assert [len(held) for _, held in split(scenario(0.0), shards)] == [0, 0, 0]
    assert [len(own) for own, _ in split(scenario(0.99), shards)] == [1, 1, 1]
    with pytest.raises(ScenarioError, match=r"dataset\.held_out: .*; w1 has 1"):
        split(scenario(0.25), [np.arange(8), np.arange(1)])


def test_a_run_evaluates_per_client(run_simulation: Callable[..., Run], digits: Path) -> None:
    run = run_simulation("one", text=TEXT)
    last = run.evaluations.iloc[-1]
    experiment = Experiment.open(run.folder.path, data=digits)
    model, data = load_model(run.folder.path, "final"), experiment.data
    assert experiment.held_out is not None
    evaluations = [
        model.bound.evaluate(data.train_images[one.held], data.train_labels[one.held])
        for one in experiment.held_out.clients
    ]
    accuracies = [one.metrics["top1"] or 0.0 for one in evaluations]
    assert last[list(distribution(accuracies))].to_dict() == distribution(accuracies)
    assert not {*experiment.shards[0]} & {*experiment.held_out.clients[0].held}


FAULTS = """
faults:
  - kill: {workers: [w1], at: {metrics: {clients_deviation: 0.5}}}
  - slow: {workers: [w2], at: {metrics: {clients_worst: 1.0}}, factor: 2}
  - kill: {workers: [w3], at: {loss: 100}}
"""


def test_faults_begin_at_values_of_evaluations(run_simulation: Callable[..., Run]) -> None:
    """A deviation below 1/2 is better and always so, as is a loss below 100; the worst is not 1."""
    run = run_simulation("one", text=TEXT + FAULTS)
    applied = list(only(read_events(run.folder.events), FaultApplied))
    at = run.evaluations["time_seconds"].iloc[0]
    assert [(one.kind, *one.nodes, one.planned_seconds) for one in applied] == [
        ("kill", "w1", at),
        ("kill", "w3", at),
    ]


def test_personalised_models_do_better_where_clients_differ(
    run_simulation: Callable[..., Run],
) -> None:
    """The global model and its training are the same."""
    tuned = "{clients: {fine_tune: {epochs: 5, learning_rate: 0.05}}}"
    plain = run_simulation("plain", text=TEXT).evaluations
    own = run_simulation(
        "own", text=TEXT.replace("[top1, clients]", f"[top1, {tuned}]")
    ).evaluations
    assert own["loss"].tolist() == plain["loss"].tolist()
    assert own["clients_mean"].iloc[-1] > plain["clients_mean"].iloc[-1]
