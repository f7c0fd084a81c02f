"""What an engine and its kernel can give to nodes, as ``docker info`` tells. Pure but for CPUs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from testbed.errors import HostError
from testbed.host.cpusets import check_present
from testbed.host.hierarchies import find_hierarchies
from testbed.host.limits import Limits, settings
from testbed.topology import NodeSpec

ENFORCED_BY = {"cpu": "CpuCfsQuota", "memory": "MemoryLimit", "cpuset": "CPUSet"}
"""Limits of a node, and what an engine says true to where its kernel can enforce them."""

GPU_RUNTIME = "nvidia"
REMOVE = "or remove it from the scenario"


def check_abilities(nodes: Iterable[NodeSpec], info: Mapping[str, Any]) -> None:
    """Refuse what this engine cannot give to nodes.

    Args:
        nodes: with their limits.
        info: what ``docker info`` tells.

    Raises:
        HostError: a node has a limit that nobody enforces, CPUs that are missing, or GPUs in an
            engine without a runtime for them; names it, and the cure.
    """
    for node in nodes:
        whose = f"{node.name} (class {node.device_class})" if node.device_class else node.name
        for limit, told in ENFORCED_BY.items():
            wanted = getattr(node, limit)
            if wanted is not None and not info.get(told, False):
                raise HostError(
                    f"{whose}: {limit} {wanted} is a limit, and the kernel under this Docker "
                    "engine cannot enforce it.",
                    hint=f"`docker info` ends with what the kernel lacks: add it, {REMOVE}.",
                )
        settings(Limits.of(node), "cpu", 1)  # refuses what no kernel can hold
        if node.cpuset is not None:
            check_present(whose, node.cpuset, find_hierarchies())
        if node.gpus and GPU_RUNTIME not in info.get("Runtimes", {}):
            raise HostError(
                f"{whose}: gpus {node.gpus}, and this Docker engine has no runtime {GPU_RUNTIME}.",
                hint=f"Install the NVIDIA Container Toolkit, {REMOVE}.",
            )


def want_gpus(nodes: Iterable[NodeSpec]) -> bool:
    """Whether any node is to have a GPU; then all have the image that can use one."""
    return any(node.gpus for node in nodes)
