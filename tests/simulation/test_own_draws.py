"""Random numbers drawn by the user's code depend only on worker and step."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch

from testbed import Run
from testbed.algorithms.frame.actions import Step
from testbed.algorithms.frame.compute import OwnCompute, batch_of
from testbed.datasets import load
from testbed.models import CustomModel
from testbed.roles.clock import EmulatedClock
from testbed.roles.device import Device
from testbed.simulation.learner import Learner

NET = """
import random
import numpy as np
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, image_shape, classes):
        super().__init__()
        size = image_shape[0] * image_shape[1] * image_shape[2]
        self.layers = nn.Sequential(
            nn.Flatten(), nn.Linear(size, 8), nn.RReLU(), nn.Dropout(0.5), nn.Linear(8, classes)
        )

    def forward(self, images):
        scores = self.layers(images + 0.1 * torch.randn_like(images))
        return scores * (1 + 0.1 * random.random())

    def loss(self, outputs, targets):
        return nn.functional.cross_entropy(outputs, targets) * (1 + 0.1 * np.random.random())
"""
ALGORITHM = """
import numpy as np
import torch
from testbed.algorithms.base import AlgorithmConfig, Applied, ServerHalf, Update, WorkerHalf
from testbed.payloads import Dense

class Noisy(AlgorithmConfig):
    def halves(self):
        return Worker, Server

class Worker(WorkerHalf):
    def receive(self, reply, now):
        self.noise = torch.randn(self.layout.size).numpy()
        return super().receive(reply, now)

    def step(self, gradient, samples, now):
        mine = torch.randn(self.layout.size).numpy() + self.noise + np.float32(np.random.random())
        return Update(Dense(gradient + np.float32(0.001) * mine), self.version, samples)

class Server(ServerHalf):
    def push(self, worker, update, now):
        noise = torch.randn(self.layout.size).numpy()
        self.parameters -= np.float32(0.1) * (update.payload.values + np.float32(0.001) * noise)
        self.version += 1
        return [Applied(worker, self.version - 1, self.version - 1 - update.version)]
"""
SCENARIO = """
name: draws
seed: 3
runtime: simulated
algorithm: {custom: {file: ./noisy.py, class: Noisy}}
model: {custom: {file: ./net.py, class: Net}}
dataset: digits
workers: {count: 5, classes: {any: {speed: {law: "uniform(0.5,1.5)", mean: 30ms}}}}
stop: {updates: 40}
evaluate: {every: 10, images: 100}
"""
FILES = {"net.py": NET, "noisy.py": ALGORITHM}

Simulate = Callable[..., Run]


def test_a_run_is_bit_identical_for_any_number_of_processes(
    run_simulation: Simulate,
) -> None:
    """The model and its loss draw, in training and in evaluation, and so do the halves."""
    runs = {
        count: run_simulation(f"p{count}", text=SCENARIO, files=FILES, processes=count)
        for count in (1, 2, 3)
    }
    runs[4] = run_simulation("again", text=SCENARIO, files=FILES, processes=2)
    models = {(run.folder.model / "final.safetensors").read_bytes() for run in runs.values()}
    losses = {tuple(run.evaluations["loss"]) for run in runs.values()}
    assert (len(models), len(losses)) == (1, 1)


def test_another_seed_gives_other_draws(run_simulation: Simulate) -> None:
    """Including the evaluation of the same initial model, which draws in its forward."""
    one, other = (
        run_simulation(name, f"seed={seed}", text=SCENARIO, files=FILES)
        for name, seed in (("three", 3), ("four", 4))
    )
    assert one.evaluations["loss"].iloc[-1] != other.evaluations["loss"].iloc[-1]


def test_a_live_device_and_a_simulation_draw_the_same(tmp_path: Path, digits: Path) -> None:
    (tmp_path / "custom").mkdir()
    (tmp_path / "custom" / "net.py").write_text(NET, encoding="utf-8")
    own = {"name": "custom", "file": "net.py", "class": "Net"}
    data = load(digits)
    network = CustomModel.model_validate(own).build(data.image_shape, 10, folder=tmp_path)
    at = network.initial(np.random.default_rng(0))
    there = at.copy()
    learner = Learner(data, OwnCompute(data, there, network.bind(there)))
    device = Device(
        index=0,
        compute=OwnCompute(data, at, network.bind(at)),
        parameters=at,
        data=data,
        fingerprint=network.layout.fingerprint,
        size=network.layout.size,
        step=None,
        connection=cast("Any", None),  # a step makes no call
        clock=EmulatedClock(1.0),
    )
    gradients = {}
    for draw in (1, 2):
        step = Step(np.arange(10), draw)
        torch.randn(draw)  # earlier draws by others
        simulated = learner.gradient(step, at).values.copy()
        live = cast("Any", device.perform(step)).gradient
        np.testing.assert_array_equal(live, simulated)
        gradients[draw] = simulated
    assert not np.array_equal(gradients[1], gradients[2])


def test_a_step_without_a_draw_does_not_change_the_generators(digits: Path) -> None:
    """Models of this package draw nothing: their steps need no seeding."""
    before = torch.get_rng_state()
    batch_of(Step(np.arange(2)), load(digits))
    assert torch.equal(torch.get_rng_state(), before)
