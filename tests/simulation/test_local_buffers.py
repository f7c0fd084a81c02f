"""Normalisation layers that stay at the workers, in simulated runs: bytes, rounds, resumption."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from testbed import Run
from testbed.algorithms.base import Reply, Stream
from testbed.algorithms.fedavg import FedAvg
from testbed.algorithms.frame.actions import Arrived, Computed, Push, Step
from testbed.algorithms.frame.worker import Shard, Worker
from testbed.payloads import Dense
from testbed.payloads.layout import Layout
from testbed.scenario.experiment import Experiment, load_model
from testbed.simulation.checkpoint import Checkpoint
from testbed.simulation.event_queue import EventQueue
from testbed.simulation.run import simulate, virtual_clock
from testbed.telemetry.entry import only
from testbed.telemetry.events import read_events
from testbed.telemetry.folder import RunFolder
from testbed.telemetry.ps_events import ClientsEvaluated
from testbed.telemetry.record import Recorder

NET = """
from torch import nn

def net(image_shape, classes):
    return nn.Sequential(
        nn.Flatten(), nn.Linear(64, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, classes)
    )
"""
TEXT = """
name: local
runtime: simulated
algorithm: {fedavg: {learning_rate: 0.1, optimizer: {sgd: {momentum: 0.5}}}}
model: {custom: {file: ./net.py, class: net, buffers: fedbn}}
dataset: {digits: {partition: {dirichlet: {alpha: 0.5}}, held_out: 0.2}}
workers: {count: 3, batch_size: 40, classes: {any: {speed: 10ms}}}
stop: {updates: 12}
evaluate: {every: 3, images: 50, metrics: [top1, {clients: {by: workers}}]}
checkpoint: {every: 6}
"""
FILES = {"net.py": NET}
OTHERS = 65 * 8 + 9 * 10
"""Parameters of the other layers."""

Simulate = Callable[..., Run]


def found(run: Run) -> list[dict[str, float]]:
    events = only(read_events(run.folder.events), ClientsEvaluated)
    return [dict(one.accuracies) for one in events]


def test_what_stays_is_not_sent_and_is_put_back() -> None:
    """Of w = (1, 2, 3), two stay; a step of 1/2 of the gradient (1, 1, 1), but all of the last."""
    layout = Layout(("w", "scale", "mean"), ((1,), (1,), (1,)), frozenset({"mean"}))
    config = FedAvg(name="fedavg", learning_rate=0.5)
    half = config.worker(layout, 1, rng=np.random.default_rng(0))
    half.parameters[1:] = [2, 3]
    shard = Shard(np.arange(1), np.random.default_rng(0))
    loop = Worker(half, Stream(1, own=1), shard, think=lambda: 0.0, local=2).loop()
    next(loop)
    for version, there in enumerate(([1, 2, 3], [10, 1.5, 2])):
        sent = Dense(np.array(there[:1], np.float32))
        assert isinstance(loop.send(Arrived(0.0, Reply(sent, version))), Step)
        assert half.parameters.tolist() == there
        push = loop.send(Computed(0.0, np.ones(3, np.float32)))
        assert isinstance(push, Push)
        assert isinstance(push.update.payload, Dense)
        assert push.update.payload.values.tolist() == [0.5]


@pytest.mark.parametrize(("buffers", "sent"), [("local", OTHERS + 16), ("fedbn", OTHERS)])
def test_bytes_and_values_of_a_run(run_simulation: Simulate, buffers: str, sent: int) -> None:
    """Only the accuracy, 8 bytes, travels in addition. The values differ from shared layers'."""
    run = run_simulation("own", f"model.custom.buffers={buffers}", text=TEXT, files=FILES)
    assert set(run.updates["payload_up_bytes"]) == {4 * sent + 8}
    assert set(run.updates["payload_down_bytes"]) == {4 * sent}
    shared = run_simulation("all", "model.custom.buffers=averaged", text=TEXT, files=FILES)
    assert set(shared.updates["payload_up_bytes"]) == {4 * (OTHERS + 32) + 8}
    assert found(run)[0] == found(shared)[0]  # all begin with the same model
    assert found(run)[1:] != found(shared)[1:]


def test_a_worker_that_returns_begins_anew(run_simulation: Simulate, digits: Path) -> None:
    """A killed process has lost its layers: it evaluates the model with initial ones."""
    leaves = "{kill: {workers: [w1], at: {version: 3}}}, {join: {workers: [w1], at: {version: 7}}}"
    more = (f"faults=[{leaves}]", "evaluate.every=1")
    run, until_then = (
        run_simulation(f"to{end}", f"stop.updates={end}", *more, text=TEXT, files=FILES)
        for end in (12, 9)
    )
    assert ["w1" in one for one in found(run)] == [True, False, False, False, True]
    experiment = Experiment.open(run.folder.path, data=digits)
    half, client = experiment.worker(1).half, experiment.client(1)
    model = load_model(until_then.folder.path, "final")
    half.parameters[: model.parameters.size] = model.parameters
    assert client is not None
    accuracy = client.accuracy(experiment.network.bind(half.parameters), 0)
    assert found(run)[-1]["w1"] == accuracy


@pytest.mark.parametrize("processes", [1, 2])
def test_a_resumed_run_is_bit_identical(
    run_simulation: Simulate, digits: Path, tmp_path: Path, processes: int
) -> None:
    run = run_simulation("whole", text=TEXT, files=FILES)
    folder = RunFolder(Path(shutil.copytree(run.folder.path, tmp_path / "resumed")))
    checkpoint, events = Checkpoint.open(folder), EventQueue()
    checkpoint.truncate_records(folder)
    experiment = Experiment.open(folder.path, data=digits)
    more: dict[str, Any] = {"events": events, "folder": folder.path, "processes": processes}
    with Recorder.into(folder, time_scale=1.0, clock=virtual_clock(events)) as recorder:
        simulate(experiment, recorder, checkpoint=checkpoint, **more)
    assert found(Run(folder.path)) == found(run)
    assert folder.evaluations.read_bytes() == run.folder.evaluations.read_bytes()
    final = "final.safetensors"
    assert (folder.model / final).read_bytes() == (run.folder.model / final).read_bytes()
