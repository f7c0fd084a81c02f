"""Arguments of a run's nodes, and names of runs."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from testbed.errors import ScenarioError
from testbed.plan.gpus import deal_gpus
from testbed.rpc.tokens import token_of
from testbed.run.prepare import custom_files, run_name
from testbed.runtimes import Docker
from testbed.scenario import load, load_text
from testbed.values.topology import Gpu
from testbed.values.units import Size

NOON = 1_767_268_800.0  # 2026-01-01T12:00:00Z


def targets(small: Any, node: str) -> dict[str, bool]:
    """Mounts of a node, and whether they are writable."""
    launch = small.setup.launch(small.setup.plan.node(node))
    launch.check()
    return {str(mount.target): mount.writable for mount in launch.mounts}


def test_ps_and_evaluator_can_write_and_workers_do_not_see_their_folders(small: Any) -> None:
    everybody = {
        "/run/testbed/scenario.yaml": False,
        "/run/testbed/data": False,
        "/etc/hosts": False,
    }
    assert targets(small, "ps") == everybody | {
        "/run/testbed/sockets": True,
        "/run/testbed/ps": True,
    }
    assert targets(small, "evaluator") == everybody | {
        "/run/testbed/sockets": False,
        "/run/testbed/model": True,
    }
    worker = everybody | {"/run/testbed/slow": False}
    assert targets(small, "w0") == worker
    small.setup = replace(small.setup, scenario=load_text(OWN.format(model="m.py", dataset="d.py")))
    assert targets(small, "w0") == worker | {"/run/testbed/custom": False}


def test_workers_know_the_ps_and_the_ps_the_workers(small: Any) -> None:
    plan, setup = small.setup.plan, small.setup
    to_ps = [(n.address, n.mac) for n in setup.launch(plan.node("w1")).neighbours]
    assert to_ps == [("10.77.0.1", "02:00:0a:4d:00:01")]
    to_workers = [n.address for n in setup.launch(plan.ps).neighbours]
    assert to_workers == ["10.77.0.2", "10.77.0.3", "10.77.0.4"]
    assert setup.launch(plan.node("evaluator")).neighbours == ()


def test_a_role_gets_its_arguments(small: Any) -> None:
    launch = small.setup.launch(small.setup.plan.node("w2"))
    assert launch.entry == "testbed.roles.worker:main"
    assert launch.arguments == {
        "node": "w2",
        "index": "2",
        "folder": "/run/testbed",
        "server": "10.77.0.1:5000",
        "token": token_of("s3cret", "w2"),
    }
    assert launch.log == small.setup.folder.log("w2")
    ps = small.setup.launch(small.setup.plan.ps)
    assert ps.arguments["token"] == "s3cret"  # from which it derives all others


def test_a_node_with_gpus_starts_cold_and_sees_only_these(make_small: Any) -> None:
    small = make_small("workers.classes.slow.gpus=0.5")
    found = Gpu(3, "GPU-aa", "Any", Size(10e9), 1)
    small.setup = replace(small.setup, plan=deal_gpus(small.setup.plan, [found], vector=0))
    plan, setup = small.setup.plan, small.setup
    with_gpu, without = (setup.launch(plan.node(name)) for name in ("w2", "w1"))
    assert (with_gpu.arguments["device"], with_gpu.arguments["gpu_memory"]) == ("cuda", "0.45")
    assert with_gpu.environment == {"CUDA_VISIBLE_DEVICES": "GPU-aa"}
    assert (with_gpu.mode, without.mode) == ("cold", "warm")
    assert "device" not in without.arguments
    assert without.environment == {}
    shown = [mount.target for mount in with_gpu.mounts if Path("/dev") in mount.target.parents]
    assert shown == [Path("/dev/nvidia1"), Path("/dev/nvidia-uvm")]
    with_gpu.check()
    docker = setup.scenario.model_copy(update={"runtime": Docker(name="docker")})
    launch = replace(setup, scenario=docker).launch(plan.node("w2"))
    assert {mount.target for mount in launch.mounts} == {one.target for one in without.mounts}


def test_the_node_that_computes_has_gpus_as_a_worker_has(make_small: Any) -> None:
    """A worker has none, and is forked from the template."""
    small = make_small("compute={shared: {gpus: 2}}", "workers.classes.slow.memory=null")
    found = [Gpu(index, f"GPU-{index}", "Any", Size(10e9), index) for index in range(2)]
    setup = replace(small.setup, plan=deal_gpus(small.setup.plan, found, vector=0))
    computes, worker = (setup.launch(setup.plan.node(name)) for name in ("compute", "w0"))
    assert (computes.arguments["device"], computes.arguments["gpu_memory"]) == ("cuda", "1.0")
    assert computes.environment == {"CUDA_VISIBLE_DEVICES": "GPU-0,GPU-1"}
    assert (computes.mode, worker.mode) == ("cold", "warm")
    shown = [mount.target for mount in computes.mounts if Path("/dev") in mount.target.parents]
    assert shown == [Path("/dev/nvidia0"), Path("/dev/nvidia1"), Path("/dev/nvidia-uvm")]
    assert "device" not in worker.arguments
    computes.check()


def test_cold_nodes_need_no_template(make_small: Any) -> None:
    assert make_small("launch=cold").setup.template().preload == ()


def test_warm_nodes_are_forked_from_one_that_has_imported_every_role(small: Any) -> None:
    template = small.setup.template()
    assert template.preload == tuple(f"testbed.roles.{r}" for r in ("ps", "evaluator", "worker"))
    assert template.arguments["scenario"] == str(small.setup.folder.scenario)


def test_the_agent_can_read_the_data_for_its_warm_up(small: Any) -> None:
    start = small.setup.start()
    assert start.reads == (small.setup.data,)
    assert start.template == small.setup.template()


def test_a_container_has_the_environment_of_its_role(small: Any) -> None:
    for node in small.setup.plan.nodes:
        container, launch = small.setup.container(node), small.setup.launch(node)
        assert (container.node, container.mounts, container.log) == (
            node,
            launch.mounts,
            launch.log,
        )


def test_a_name_in_use_gets_a_number(tmp_path: Path) -> None:
    assert run_name("quick", now=NOON, taken=tmp_path) == "quick-0101-120000"
    (tmp_path / "quick-0101-120000").mkdir()
    (tmp_path / "quick-0101-120000-2").symlink_to("nowhere")
    assert run_name("quick", now=NOON, taken=tmp_path) == "quick-0101-120000-3"


OWN = """\
name: own
algorithm: asgd
model: {{name: custom, file: {model}, class: Net}}
dataset: {{name: custom, file: {dataset}, class: Data}}
workers: {{count: 1}}
stop: {{updates: 1}}
"""


def own(folder: Path, *, model: str, dataset: str) -> tuple[Path, ...]:
    for name in (model, dataset):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("class Net: ...\nclass Data: ...\n")
    file = folder / "own.yaml"
    file.write_text(OWN.format(model=model, dataset=dataset))
    return custom_files(load(file), folder)


def test_own_files(tmp_path: Path) -> None:
    assert own(tmp_path, model="net.py", dataset="data.py") == (
        tmp_path / "data.py",
        tmp_path / "net.py",
    )
    assert own(tmp_path, model="net.py", dataset="./net.py") == (tmp_path / "net.py",)


def test_two_own_files_of_the_same_name(tmp_path: Path) -> None:
    with pytest.raises(
        ScenarioError, match=r"dataset.file: found .*b/net.py, expected a name other than"
    ):
        own(tmp_path, model="net.py", dataset=os.path.join("b", "net.py"))  # noqa: PTH118
