"""The GPUs of nodes in runtimes without an engine: device nodes of the host, and their selection.

A device node of another kind stands for a GPU's: what a node may open does not depend on the kind.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from testbed.runtimes.agent.launch import Mount
from testbed.runtimes.base import RuntimeDriver
from testbed.runtimes.native.driver import NativeDriver

pytestmark = pytest.mark.root

NULL = os.makedev(1, 3)


@pytest.fixture(scope="module", params=["native", "lxc"])
def driver(request: pytest.FixtureRequest) -> RuntimeDriver:
    if request.param == "native":
        return NativeDriver()
    found: RuntimeDriver = request.getfixturevalue("lxc")
    return found


@pytest.fixture
def device() -> Iterator[Path]:
    """A new device node among those of the host."""
    path = Path(f"/dev/testbed-gpu-{os.getpid()}")
    os.mknod(path, stat.S_IFCHR | 0o666, NULL)
    path.chmod(0o666)
    yield path
    path.unlink()


@pytest.mark.parametrize("mode", ["warm", "cold"])
def test_a_node_opens_the_devices_of_its_gpus(live: Any, device: Path, mode: str) -> None:
    number = {"warm": 1, "cold": 3}[mode]
    status, output = live.run(
        live.node(f"w{number}", gpus=1),
        "entries:look_for_gpus",
        arguments={"device": str(device)},
        mounts=(Mount(device, device),),
        environment={"CUDA_VISIBLE_DEVICES": "GPU-aa"},
        mode=mode,
    )
    assert status == 0, output
    found = json.loads(output)
    assert (found["CUDA_VISIBLE_DEVICES"], found["device"]) == ("GPU-aa", "opened")


def test_cuda_shows_no_gpu_to_a_node_without_one(live: Any, device: Path) -> None:
    status, output = live.run("w5", "entries:look_for_gpus", arguments={"device": str(device)})
    assert status == 0, output
    found = json.loads(output)
    assert found["CUDA_VISIBLE_DEVICES"] == ""
    # A native node sees all of the host's devices, as it sees its files.
    assert found["device"] == ("opened" if is_native(live.driver) else "ENOENT")


def is_native(driver: RuntimeDriver) -> bool:
    """Whether it is the native runtime; that of LXC is made from it."""
    return type(driver) is NativeDriver
