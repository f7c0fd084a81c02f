"""The device on which the processes of a simulation compute."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from testbed.errors import HostError, ScenarioError
from testbed.scenario import load_text
from testbed.scenario.load_workload import load_any_document
from testbed.scenario.parse import parse_document
from testbed.scenario.schema import Scenario
from testbed.scenario.workload import Workload
from testbed.simulation.build import compute_device

TEXT = """
name: tiny
runtime:
  simulated: {device: cuda}
algorithm: asgd
model: digits-cnn
dataset: digits
workers: {count: 2, classes: {default: {speed: 10ms}}}
stop: {updates: 10}
"""


def scenario(device: str) -> Scenario:
    return load_text(TEXT.replace("cuda", device))


def test_the_device_is_the_cpu_unless_the_scenario_says_otherwise() -> None:
    assert scenario("cpu") == load_text(TEXT.replace("{device: cuda}", "{}"))
    assert compute_device(scenario("cpu")) is None


def test_a_gpu_is_required_only_for_runs() -> None:
    def loaded(device: str, *, has_cuda: bool) -> Scenario | Workload:
        document = parse_document(TEXT.replace("cuda", device), "scenario")
        return load_any_document(document, Path, has_cuda=lambda: has_cuda)

    assert loaded("cuda", has_cuda=True) == load_text(TEXT)
    assert loaded("cpu", has_cuda=False) == scenario("cpu")
    with pytest.raises(ScenarioError) as refused:
        loaded("cuda", has_cuda=False)
    assert str(refused.value) == (
        "scenario:4: runtime.simulated.device: found cuda, expected a GPU that the installed "
        "PyTorch can use, or cpu: PyTorch finds no GPU here"
    )


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_process_without_a_gpu_says_so() -> None:
    with pytest.raises(HostError, match=r"device is cuda, but PyTorch cannot use CUDA"):
        compute_device(scenario("cuda"))
