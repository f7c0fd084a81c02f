"""What ``up`` refuses before it creates anything of a run."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from testbed.errors import HostError
from testbed.run.prepare import RunRequest, WorkloadRequest
from testbed.run.up import RunListener, up
from testbed.scenario import load_text
from testbed.scenario.load_workload import load_workload
from testbed.telemetry.host import torch_build
from testbed.values.topology import Gpu
from testbed.values.units import Size

TEXT = """\
name: asked
algorithm: asgd
model: digits-cnn
dataset: digits
workers: {count: 2, classes: {all: {gpus: GPUS}}}
stop: {updates: 1}
"""
SMALL = Gpu(0, "GPU-aa", "Any", Size(1.2e9), 0)


def request_of(runs: Path, gpus: str) -> RunRequest:
    scenario = load_text(TEXT.replace("GPUS", gpus))
    environment = {**os.environ, "XDG_STATE_HOME": str(runs.parent)}
    return RunRequest(scenario, runs.parent, runs, None, (), environment, runs.parent, 0.0)


def test_gpus_that_the_host_lacks_are_refused(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    with pytest.raises(HostError, match=r"w0 .*this host has no NVIDIA GPU"):
        up(request_of(runs, "1"), RunListener(), find_gpus=lambda: ())
    with pytest.raises(HostError, match=r"w0 .*gpus 0.25 is 300 MB of GPU 0, .* At most 2 nodes"):
        up(request_of(runs, "0.25"), RunListener(), find_gpus=lambda: (SMALL,))
    assert not runs.exists()


def test_gpus_of_the_node_that_computes_are_refused_like_a_workers(tmp_path: Path) -> None:
    """With vmap, it needs the model twice, and three vectors of each of 1,000 gradients."""
    shared = TEXT.replace("{all: {gpus: GPUS}}", "{all: {}}")
    runs = tmp_path / "runs"
    for given, found, why in (
        ("gpus: 1", (), "compute: gpus 1, but this host has no NVIDIA GPU: .* Set gpus to 0"),
        ("gpus: 2", (SMALL,), "compute: gpus 2, but of this host's 1 there is left: 1 of GPU 0"),
        (
            "gpus: 0.5, vmap: 1000",
            (SMALL,),
            r"compute: gpus 0.5 is 600 MB of GPU 0, expected at least 707 MB: 500 MB for its CUDA "
            r"context, and 207 MB for 1,000 gradients at once. Set a smaller vmap.",
        ),
    ):
        scenario = load_text(f"{shared}compute: {{shared: {{{given}}}}}\n")
        request = replace(request_of(runs, "0"), scenario=scenario)
        with pytest.raises(HostError, match=why):
            up(request, RunListener(), find_gpus=lambda found=found: found)
    assert not runs.exists()


def test_gpus_that_a_workload_lacks_are_refused(tmp_path: Path) -> None:
    (tmp_path / "w.yaml").write_text("name: w\nworkload: {job: {command: [work], gpus: 1}}\n")
    workload, runs = load_workload(tmp_path / "w.yaml"), tmp_path / "runs"
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path)}
    request = WorkloadRequest(workload, tmp_path, runs, None, (), environment, tmp_path, 0.0)
    with pytest.raises(HostError, match=r"job .*gpus 1, but this host has no NVIDIA GPU"):
        up(request, RunListener(), find_gpus=lambda: ())
    assert not runs.exists()


@pytest.mark.namespaces
@pytest.mark.skipif("cuda" in str(torch_build()), reason="this torch can use CUDA")
def test_gpus_that_torch_cannot_use_are_refused(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    with pytest.raises(HostError, match=r"w0: gpus 0.5, but the installed PyTorch cannot use CUDA"):
        up(request_of(runs, "0.5"), RunListener(), find_gpus=lambda: (SMALL,))
    assert not runs.exists()
