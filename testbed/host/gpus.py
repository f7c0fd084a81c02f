"""The NVIDIA GPUs of this host, as its driver reports them, and the device nodes of each."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from testbed.errors import HostError
from testbed.host.environment import BASE
from testbed.values.topology import Gpu, NodeSpec
from testbed.values.units import Size

TOOL = "nvidia-smi"
FIELDS = "index,uuid,memory.total,name"
QUERY = (f"--query-gpu={FIELDS}", "--format=csv,noheader,nounits")
QUERY_SECONDS = 60.0
"""Without its persistence daemon, the driver takes seconds for each GPU."""

DRIVER = Path("/proc/driver/nvidia/gpus")
DEVICES = Path("/dev")
SHARED_DEVICES = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools")
UNIFIED_MEMORY = "nvidia-uvm"


def find_gpus(*, path: str = BASE["PATH"], driver: Path = DRIVER) -> tuple[Gpu, ...]:
    """Return this host's GPUs by index; none without NVIDIA's driver.

    Args:
        path: where its tool is looked for.
        driver: the folder in which the driver describes each GPU.

    Raises:
        HostError: the driver is installed and does not work; contains what it says.
    """
    tool = shutil.which(TOOL, path=path)
    if tool is None:
        return ()
    try:
        done = subprocess.run(
            [tool, *QUERY],
            capture_output=True,
            text=True,
            timeout=QUERY_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise HostError(f"{TOOL} does not answer in {QUERY_SECONDS:g} s.") from None
    if done.returncode != 0:
        said = " ".join((done.stdout + done.stderr).split())
        raise HostError(f"{TOOL} failed with status {done.returncode}: {said}")
    texts = (file.read_text() for file in sorted(driver.glob("*/information")))
    return parse_gpus(done.stdout, parse_minors(texts))


def parse_gpus(table: str, minors: Mapping[str, int]) -> tuple[Gpu, ...]:
    """Parse the tool's table, with lines of FIELDS. Pure.

    Args:
        table: its output; memory is in MiB.
        minors: numbers of the device nodes, by UUID.

    Raises:
        HostError: a line has other fields, or the driver does not name the device node of a GPU.
    """
    found = []
    for line in filter(None, table.splitlines()):
        try:
            index, uuid, mebibytes, name = (word.strip() for word in line.split(",", 3))
            memory = Size(int(mebibytes) * 2**20)
            found.append(Gpu(int(index), uuid, name, memory, minors[uuid]))
        except ValueError:
            raise HostError(f"{TOOL} printed {line!r}, expected {FIELDS}.") from None
        except KeyError:
            raise HostError(
                f"GPU {uuid} has no entry with its device node in {DRIVER}.",
                hint="In a container, show it this folder of the host.",
            ) from None
    return tuple(sorted(found, key=lambda gpu: gpu.index))


def parse_minors(texts: Iterable[str]) -> dict[str, int]:
    """Parse the driver's descriptions of GPUs: numbers of their device nodes, by UUID. Pure."""
    minors = {}
    for text in texts:
        fields = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
        minors[fields["GPU UUID"].strip()] = int(fields["Device Minor"])
    return minors


def device_nodes(gpus: Sequence[Gpu], folder: Path = DEVICES) -> tuple[Path, ...]:
    """Return the device nodes that a process needs to compute on these GPUs."""
    if not gpus:
        return ()
    shared = [folder / name for name in SHARED_DEVICES]
    own = (folder / f"nvidia{gpu.minor}" for gpu in gpus)
    return (*own, *(one for one in shared if one.name == UNIFIED_MEMORY or one.exists()))


def check_gpus(nodes: Iterable[NodeSpec], *, build: str | None, folder: Path = DEVICES) -> None:
    """Reject nodes with GPUs that they could not use with this host's PyTorch and device nodes.

    Nodes of a workload bring their own libraries.

    Args:
        nodes: with the GPUs that they were dealt.
        build: that of the installed PyTorch, like ``cuda 12.8``.
        folder: with the device nodes.

    Raises:
        HostError: PyTorch cannot use CUDA, or a device node is missing; says what to do.
    """
    for node in [node for node in nodes if node.gpus]:
        if node.part != "peer" and (build is None or not build.startswith("cuda")):
            raise HostError(
                f"{node.name}: gpus {node.gpus:g}, but the installed PyTorch cannot use CUDA: its "
                f"build is {build}.",
                hint="Install PyTorch's build for CUDA: pip install --force-reinstall torch "
                "--index-url https://pypi.org/simple",
            )
        for device in device_nodes(node.dealt, folder):
            if not device.exists():
                raise HostError(
                    f"{node.name}: {device} does not exist, so CUDA cannot start.",
                    hint="Create it: sudo nvidia-modprobe -c 0 -u",
                )
