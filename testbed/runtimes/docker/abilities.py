"""What an engine can provide to nodes, by its ``docker info``: limits, CPUs, GPUs."""

from __future__ import annotations

import resource
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from testbed.errors import HostError
from testbed.host.hierarchies import check_present, find_hierarchies, usable
from testbed.host.limits import Limits, settings
from testbed.runtimes.docker.engine import is_podman, product_of
from testbed.runtimes.docker.gpus import GpuAccess, check_access, find_access
from testbed.values.cpu_sets import CpuSet
from testbed.values.topology import NodeSpec

ENFORCED_BY = {"cpu": "CpuCfsQuota", "memory": "MemoryLimit", "cpuset": "CPUSet"}
"""Limits of a node, and the field of ``docker info`` that says whether the kernel enforces it."""

MOST_FILES = 2**20
MOST_PROCESSES = Path("/proc/sys/kernel/pid_max")

REMOVE = "or remove it from the scenario"


def check_abilities(
    nodes: Iterable[NodeSpec], info: Mapping[str, Any], *, here: bool = True
) -> None:
    """Reject nodes that need what this engine, with this ``docker info``, cannot provide.

    Args:
        nodes: those of the engine's host.
        info: what the engine says.
        here: whether it is the engine of this host.

    Raises:
        HostError: a node has a limit that is not enforced, CPUs that do not exist, or GPUs that
            the engine cannot give it; names it, and the fix.
    """
    for node in nodes:
        whose = node.full_name
        for limit, told in ENFORCED_BY.items():
            wanted = getattr(node, limit)
            if wanted is not None and not info.get(told, False):
                raise HostError(
                    f"{whose}: {limit} {wanted} is a limit, which the kernel of this "
                    f"{product_of(info)} engine cannot enforce.",
                    hint=f"`docker info` ends with what the kernel lacks: enable it, {REMOVE}.",
                )
        settings(Limits.of(node), "cpu", 1)  # rejects what no kernel can enforce
        if node.cpuset is not None:
            cpus = usable(find_hierarchies()) if here else CpuSet.of(range(info["NCPU"]))
            check_present(whose, node.cpuset, cpus)
        if node.gpus:
            check_access(node, whose, info, podman=is_podman(info))


@dataclass(frozen=True)
class EngineLimits:
    """The limits of containers that depend on the engine.

    Attributes:
        host: what a container's HostConfig has in addition.
        inodes: whether a tmpfs can have a limit of files.
        filtered: whether the engine's own filter of system calls denies new namespaces.
        gpus: how containers get GPUs.
    """

    host: Mapping[str, Any] = field(default_factory=dict)
    inodes: bool = True
    filtered: bool = True
    gpus: GpuAccess = field(default_factory=GpuAccess)


def limits_in(info: Mapping[str, Any], *, gpus: bool = False) -> EngineLimits:
    """Return what an engine with this ``docker info`` needs; Podman is the one that differs.

    It would give MOST_FILES and more processes to every container, and fail if it has less itself.
    """
    access = (find_access(info, podman=is_podman(info)) if gpus else None) or GpuAccess()
    if not is_podman(info):
        return EngineLimits(gpus=access)
    most = {
        "nofile": _least(resource.RLIMIT_NOFILE, MOST_FILES),
        "nproc": _least(resource.RLIMIT_NPROC, int(MOST_PROCESSES.read_text())),
    }
    ulimits = [{"Name": name, "Soft": limit, "Hard": limit} for name, limit in most.items()]
    return EngineLimits({"Ulimits": ulimits}, inodes=False, filtered=False, gpus=access)


def _least(kind: int, most: int) -> int:
    """Return a number, or this process's own limit if that is lower."""
    own = resource.getrlimit(kind)[1]
    return most if own == resource.RLIM_INFINITY else min(own, most)


def want_gpu_image(nodes: Iterable[NodeSpec]) -> bool:
    """Return whether a node of testbed's image has a GPU; then all have the one that can use it."""
    return any(node.gpus and not node.has_users_image for node in nodes)
