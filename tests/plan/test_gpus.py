"""Dealing the host's GPUs to nodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from testbed.errors import HostError
from testbed.host.users import Users
from testbed.plan.budget import budget
from testbed.plan.gpus import deal_gpus, holders
from testbed.plan.make import plan
from testbed.plan.workload import plan_workload
from testbed.plan.written import plan_text, read_plan
from testbed.run.setup import WorkloadSetup
from testbed.runtimes import Native
from testbed.runtimes.agent.launch import Mount
from testbed.runtimes.docker.abilities import want_gpu_image
from testbed.scenario import load_text
from testbed.scenario.load_workload import load_workload
from testbed.scenario.schema import Scenario
from testbed.telemetry.folder import RunFolder
from testbed.values.topology import Gpu, Plan
from testbed.values.units import Size

TEXT = """\
name: planned
algorithm: asgd
model: adacomp-cnn
dataset: mnist
workers: {count: COUNT, classes: {CLASSES}}
stop: {updates: 100}
"""


def gpu(index: int, megabytes: int = 24_000) -> Gpu:
    return Gpu(index, f"GPU-{index}", "Any", Size(megabytes * 10**6), index)


def scenario(count: int, classes: str, more: str = "") -> Scenario:
    return load_text(TEXT.replace("COUNT", str(count)).replace("CLASSES", classes) + more)


def dealt(made: Plan) -> Mapping[str, list[int]]:
    """The indices of the GPUs of every node that has any."""
    return {node.name: [one.index for one in node.dealt] for node in made.nodes if node.dealt}


def deal(asked: Scenario, *found: Gpu, vector: int = 0) -> Plan:
    return deal_gpus(plan(asked, "r"), found, vector=vector)


def test_every_node_gets_gpus_of_its_own() -> None:
    made = deal(
        scenario(3, "two: {count: 1, gpus: 2}, one: {count: 2, gpus: 1}"), *map(gpu, range(4))
    )
    assert dealt(made) == {"w0": [0, 1], "w1": [2], "w2": [3]}
    assert {node.gpu_memory for node in made.nodes} == {1.0}


def test_shares_are_spread_over_all_gpus() -> None:
    made = deal(scenario(4, "all: {gpus: 0.25}"), gpu(0), gpu(1))
    assert dealt(made) == {"w0": [0], "w1": [1], "w2": [0], "w3": [1]}
    assert [(one.index, [n.name for n in nodes]) for one, nodes in holders(made)] == [
        (0, ["w0", "w2"]),
        (1, ["w1", "w3"]),
    ]


def test_nodes_with_larger_shares_are_dealt_first() -> None:
    """With the small ones first, 0.4 and 0.4 would leave 0.2 of a GPU: too little for 0.6."""
    classes = "small: {count: 2, gpus: 0.4}, large: {count: 2, gpus: 0.6}"
    assert dealt(deal(scenario(4, classes), gpu(0), gpu(1))) == {
        "w0": [0],
        "w1": [1],
        "w2": [0],
        "w3": [1],
    }


def test_ten_tenths_fit_on_one_gpu() -> None:
    assert len(dealt(deal(scenario(10, "all: {gpus: 0.1}"), gpu(0)))) == 10


def test_a_share_of_memory_is_what_the_context_leaves() -> None:
    """A quarter of 24 GB is 6 GB, of which the context takes 0.5 GB: 5.5 of 24 GB."""
    made = deal(scenario(4, "all: {gpus: 0.25}"), gpu(0))
    assert made.node("w3").gpu_memory == pytest.approx(5.5 / 24)


def test_the_evaluator_has_a_gpu_if_asked() -> None:
    made = deal(scenario(1, "all: {gpus: 0.5}", "evaluate: {gpus: 0.5}\n"), gpu(0))
    assert dealt(made) == {"evaluator": [0], "w0": [0]}
    assert not plan(scenario(1, "all: {}"), "r").wants_gpus


def test_too_many_nodes_are_refused() -> None:
    with pytest.raises(
        HostError, match=r"w2 \(class all\): gpus 1, but .*2 there is left: nothing"
    ):
        deal(scenario(3, "all: {gpus: 1}"), gpu(0), gpu(1))
    with pytest.raises(HostError, match=r"gpus 0.75, but .*left: 0.25 of GPU 0"):
        deal(scenario(2, "all: {gpus: 0.75}"), gpu(0))
    with pytest.raises(HostError, match=r"w0 .*this host has no NVIDIA GPU.*Set gpus to 0"):
        deal(scenario(2, "all: {gpus: 1}"))


def test_two_hundred_contexts_do_not_fit_on_one_gpu() -> None:
    """Each of 200 has 120 MB of 24 GB; with 500 MB and two vectors of 50 MB, 40 fit."""
    asked = scenario(200, "all: {gpus: 0.005}")
    told = r"gpus 0.005 is 120 MB of GPU 0, expected at least 600 MB: 500 MB .* and 100 MB .*"
    with pytest.raises(HostError, match=told + "At most 40 nodes can share this GPU"):
        deal(asked, gpu(0), vector=50_000_000)
    deal(scenario(40, "all: {gpus: 0.025}"), gpu(0), vector=50_000_000)
    with pytest.raises(HostError, match="Use a larger GPU"):
        deal(scenario(1, "all: {gpus: 1}"), gpu(0, megabytes=400))


def test_a_node_with_a_gpu_starts_cold_and_needs_memory_of_the_host() -> None:
    asked = scenario(2, "on: {count: 1, gpus: 1}, off: {count: 1}")
    made = deal(asked, gpu(0))
    assert [made.launch_of(node) for node in made.workers] == ["cold", "warm"]
    needs = budget(asked, made, None)
    assert needs.node_bytes["worker"] == 150_000_000 + 1_000_000_000
    assert needs.total_bytes == sum(
        (1_150_000_000, 20_000_000, 20_000_000, 40_000_000, 250_000_000)
    )


def test_the_plan_in_the_run_folder_says_who_has_which(tmp_path: Path) -> None:
    made, folder = deal(scenario(2, "all: {gpus: 0.5}"), gpu(0)), RunFolder(tmp_path)
    folder.plan.write_text(plan_text(made))
    assert '"dealt": [{"index": 0, "uuid": "GPU-0"' in folder.plan.read_text()
    assert read_plan(folder) == made


WORKLOAD = """\
name: w
runtime: docker
workload:
  rank:
    command: [train]
    count: 4
    gpus: 0.5
    image: own:1
    classes: {large: {count: 1, gpus: 2}, plain: {count: 2}, none: {count: 1, gpus: 0}}
  server: {command: [serve]}
"""


def test_nodes_of_a_workload_have_those_of_their_class_or_program(tmp_path: Path) -> None:
    """The two whole GPUs first; the halves share the third. Testbed's own image needs no CUDA."""
    (tmp_path / "w.yaml").write_text(WORKLOAD)
    workload = load_workload(tmp_path / "w.yaml")
    made = deal_gpus(plan_workload(workload, "w"), [gpu(0), gpu(1), gpu(2)], vector=0)
    assert dealt(made) == {"rank0": [0, 1], "rank1": [2], "rank2": [2]}
    folder = RunFolder(tmp_path)
    setup = WorkloadSetup(made, folder, Users("root"), workload)
    assert setup.launch(made.node("rank0")).environment["CUDA_VISIBLE_DEVICES"] == "GPU-0,GPU-1"
    assert "CUDA_VISIBLE_DEVICES" not in setup.launch(made.node("server")).environment
    assert not want_gpu_image(made.nodes)
    native = workload.model_copy(update={"runtime": Native(name="native")})
    launch = replace(setup, workload=native).launch(made.node("rank1"))
    assert Mount(Path("/dev/nvidia2"), Path("/dev/nvidia2")) in launch.mounts
