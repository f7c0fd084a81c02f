"""GPUs of containers: the requests to an engine, and what an engine says to them."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from testbed.errors import HostError
from testbed.runtimes.agent.settings import MARK
from testbed.runtimes.base import ContainerSpec
from testbed.runtimes.docker.abilities import EngineLimits
from testbed.runtimes.docker.containers import node_container
from testbed.runtimes.docker.engine import connect, container_faults, describe
from testbed.runtimes.docker.gpus import GpuAccess, cdi_names, check_access, find_access
from testbed.telemetry.folder import RunFolder
from testbed.values.topology import Gpu, NetworkSpec, NodeSpec, Plan
from testbed.values.units import Size

GPUS = tuple(Gpu(n, f"GPU-{name}", "Any", Size(24e9), n) for n, name in enumerate(("aa", "bb")))
NODE = NodeSpec("w3", "worker", 3, "strong", None, None, None, 1, 20003, gpus=2, dealt=GPUS)
SPECIFICATION = """\
cdiVersion: 0.5.0
kind: nvidia.com/gpu
devices:
- name: "0"
  containerEdits: {deviceNodes: [{path: /dev/nvidia0}]}
- name: GPU-bb
  containerEdits: {deviceNodes: [{path: /dev/nvidia1}]}
"""
OTHER = '{"cdiVersion": "0.5.0", "kind": "vendor.com/net", "devices": [{"name": "1"}]}'


@pytest.fixture
def folder(tmp_path: Path) -> str:
    """Specifications of devices, of which one is of GPUs."""
    (tmp_path / "nvidia.yaml").write_text(SPECIFICATION)
    (tmp_path / "other.json").write_text(OTHER)
    (tmp_path / "notes.txt").write_text("- [")
    return str(tmp_path)


@pytest.fixture
def hook(tmp_path: Path) -> str:
    """A folder with the toolkit's hook."""
    tool = tmp_path / "bin/nvidia-container-runtime-hook"
    tool.parent.mkdir()
    tool.touch(mode=0o755)
    return str(tool.parent)


def test_the_toolkit_s_hook_needs_no_runtime(hook: str) -> None:
    access = find_access({"Runtimes": {"runc": {}}}, podman=False, path=hook)
    assert access == GpuAccess("hook")
    asked = {"DeviceIDs": ["GPU-aa", "GPU-bb"], "Capabilities": [["gpu"]]}
    assert access.host(GPUS) == {"DeviceRequests": [asked]}
    assert access.environment(GPUS) == {"CUDA_VISIBLE_DEVICES": None}


def test_cdi_names_gpus_by_uuid_or_index(folder: str) -> None:
    assert cdi_names(["/nowhere", folder]) == {"0", "GPU-bb"}
    docker = find_access({"CDISpecDirs": [folder]}, podman=False, path="/nowhere")
    podman = find_access({}, podman=True, folders=[folder])
    assert docker == podman == GpuAccess("cdi", frozenset({"0", "GPU-bb"}))
    asked = {"Driver": "cdi", "DeviceIDs": ["nvidia.com/gpu=0", "nvidia.com/gpu=GPU-bb"]}
    assert podman.host(GPUS) == {"DeviceRequests": [asked]}


def test_podman_has_cdi_only(folder: str, hook: str) -> None:
    info = {"Runtimes": {"nvidia": {}}}
    assert find_access(info, podman=True, path=hook, folders=["/nowhere"]) is None
    assert find_access({}, podman=False, path="/nowhere", folders=[folder]) is None  # it reads none


def test_a_registered_runtime_gets_the_gpus_by_name() -> None:
    access = find_access({"Runtimes": {"nvidia": {}}}, podman=False, path="/nowhere")
    assert access == GpuAccess("runtime")
    assert access.host(GPUS)["Runtime"] == "nvidia"
    assert access.environment(GPUS) == {
        "CUDA_VISIBLE_DEVICES": None,
        "NVIDIA_VISIBLE_DEVICES": "GPU-aa,GPU-bb",
        "NVIDIA_DRIVER_CAPABILITIES": "compute,utility",
    }
    assert access.host(()) == {"DeviceRequests": []}  # a node without a GPU has the usual runtime


def test_a_damaged_specification_is_named(tmp_path: Path) -> None:
    (tmp_path / "nvidia.yaml").write_text("kind: nvidia.com/gpu\n")
    with pytest.raises(HostError, match=r"nvidia.yaml: not a specification of devices: 'devices'"):
        cdi_names([str(tmp_path)])


def test_what_an_engine_lacks(folder: str) -> None:
    with pytest.raises(HostError, match=r"w3: gpus 2, but Podman 4.3.1 ignores .* Podman 5"):
        check_access(NODE, "w3", {"ServerVersion": "4.3.1"}, podman=True)
    with pytest.raises(HostError, match=r"no specification in /etc/cdi .*nvidia-ctk cdi generate"):
        check_access(NODE, "w3", {"ServerVersion": "5.4.0"}, podman=True)
    info = {"CDISpecDirs": [folder]}
    check_access(NODE, "w3", info, podman=False)
    third = replace(NODE, dealt=(replace(GPUS[0], index=2, uuid="GPU-cc"),))
    with pytest.raises(HostError, match=r"CDI has no device nvidia.com/gpu=2: it has 0, GPU-bb"):
        check_access(third, "w3", info, podman=False)


@pytest.fixture(scope="module")
def image() -> Iterator[str]:
    """An image without a file."""
    name, empty = "edge-testbed-test-empty:1", io.BytesIO()
    tarfile.open(fileobj=empty, mode="w").close()
    with closing(connect()) as engine:
        engine.import_image_from_data(
            empty.getvalue(), repository=name.split(":", maxsplit=1)[0], tag="1"
        )
        yield name
        engine.remove_image(name, force=True)


@pytest.fixture
def created(image: str, tmp_path: Path) -> Iterator[tuple[Any, str]]:
    """A node's container with two GPUs in a real engine, and the engine; it is not started."""
    folder = RunFolder(tmp_path)
    folder.control.mkdir()
    (folder.control / MARK).touch()
    spec = ContainerSpec(NODE, (), Path("/etc/hosts"))
    plan = Plan(tmp_path.name, (NODE,), NetworkSpec(), "warm", {})
    body = node_container(spec, plan, folder, image=image, limits=EngineLimits()).body
    with closing(connect()) as engine:
        identity = engine.create_container_from_config(body)["Id"]
        yield engine, identity
        engine.remove_container(identity, force=True)


@pytest.mark.docker
def test_an_engine_is_asked_for_these_gpus_and_no_others(created: tuple[Any, str]) -> None:
    engine, identity = created
    (asked,) = engine.inspect_container(identity)["HostConfig"]["DeviceRequests"]
    assert (asked["Count"], asked["DeviceIDs"]) == (0, ["GPU-aa", "GPU-bb"])
    assert asked["Capabilities"] == [["gpu"]]


@pytest.mark.docker
def test_an_engine_without_the_toolkit_refuses_before_and_at_the_start(
    created: tuple[Any, str],
) -> None:
    engine, identity = created
    if find_access(describe(), podman=False) is not None:
        pytest.skip("this engine can give GPUs to containers")
    with pytest.raises(HostError, match="this Docker engine cannot give GPUs to containers"):
        check_access(NODE, "w3", describe(), podman=False)
    told = r"w3: this Docker engine cannot give GPUs to containers .*could not select"
    with pytest.raises(HostError, match=told), container_faults("w3"):
        engine.start(identity)
