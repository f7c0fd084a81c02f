"""The host's GPUs, in the formats in which NVIDIA's driver reports them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from testbed.errors import HostError
from testbed.host.gpus import check_gpus, device_nodes, find_gpus, parse_gpus, parse_minors
from testbed.values.topology import Gpu, NodeSpec
from testbed.values.units import Size

TABLE = """\
0, GPU-aaaa, 24564, NVIDIA GeForce RTX 4090
1, GPU-bbbb, 81559, NVIDIA H100, 80GB
"""
INFORMATION = """\
Model: \t\t NVIDIA H100
IRQ:   \t\t 186
GPU UUID: \t {uuid}
Bus Location: \t 0000:65:00.0
Device Minor: \t {minor}
"""
FOUND = (
    Gpu(0, "GPU-aaaa", "NVIDIA GeForce RTX 4090", Size(24564 * 2**20), 1),
    Gpu(1, "GPU-bbbb", "NVIDIA H100, 80GB", Size(81559 * 2**20), 0),
)
NODE = NodeSpec("w3", "worker", 3, "strong", None, None, None, 1, 20003, gpus=1, dealt=FOUND[:1])


def texts() -> list[str]:
    return [
        INFORMATION.format(uuid=uuid, minor=minor)
        for uuid, minor in (("GPU-aaaa", 1), ("GPU-bbbb", 0))
    ]


def test_gpus_are_numbered_as_by_the_tool_and_their_devices_as_by_the_driver() -> None:
    assert parse_gpus(TABLE, parse_minors(texts())) == FOUND


def test_an_unknown_table_or_device_is_refused() -> None:
    with pytest.raises(HostError, match=r"printed '0, GPU-aaaa, \[N/A\], Tegra', expected index"):
        parse_gpus("0, GPU-aaaa, [N/A], Tegra\n", {"GPU-aaaa": 0})
    with pytest.raises(HostError, match="GPU GPU-aaaa has no entry with its device node"):
        parse_gpus(TABLE, {})


def put_tool(folder: Path, script: str) -> str:
    tool = folder / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\n{script}\n")
    tool.chmod(0o755)
    return str(folder)


def test_a_host_without_the_driver_has_no_gpus(tmp_path: Path) -> None:
    assert find_gpus(path=str(tmp_path)) == ()


def test_the_driver_is_asked(tmp_path: Path) -> None:
    for number, text in enumerate(texts()):
        place = tmp_path / "driver" / f"0000:0{number}:00.0"
        place.mkdir(parents=True)
        (place / "information").write_text(text)
    path = put_tool(tmp_path, f"echo '{TABLE.rstrip()}'")
    assert find_gpus(path=path, driver=tmp_path / "driver") == FOUND


def test_a_driver_that_does_not_work_is_no_host_without_gpus(tmp_path: Path) -> None:
    path = put_tool(tmp_path, "echo 'Driver/library version mismatch' >&2; exit 18")
    with pytest.raises(HostError, match="failed with status 18: Driver/library version mismatch"):
        find_gpus(path=path)


def test_the_device_nodes_of_gpus(tmp_path: Path) -> None:
    (tmp_path / "nvidiactl").touch()
    names = [path.name for path in device_nodes(FOUND[:1], tmp_path)]
    assert names == ["nvidia1", "nvidiactl", "nvidia-uvm"]  # without it CUDA does not start
    assert device_nodes((), tmp_path) == ()


def test_what_a_node_with_a_gpu_needs_of_the_host(tmp_path: Path) -> None:
    without = replace(NODE, gpus=0, dealt=())
    check_gpus([without], build="cpu", folder=tmp_path)
    with pytest.raises(HostError, match=r"w3: gpus 1, .*its build is cpu.*pip install"):
        check_gpus([without, NODE], build="cpu", folder=tmp_path)
    for name in ("nvidia1", "nvidiactl"):
        (tmp_path / name).touch()
    with pytest.raises(HostError, match=r"w3: .*nvidia-uvm does not exist.*nvidia-modprobe"):
        check_gpus([NODE], build="cuda 12.8", folder=tmp_path)
    (tmp_path / "nvidia-uvm").touch()
    check_gpus([NODE], build="cuda 12.8", folder=tmp_path)
    check_gpus([replace(NODE, part="peer")], build=None, folder=tmp_path)  # libraries of its own
