"""Which node computes on which GPU of the host. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import ceil

from testbed.errors import HostError
from testbed.models.compute import vectors_at_once
from testbed.values.topology import Gpu, NodeSpec, Plan
from testbed.values.units import megabytes

CONTEXT_BYTES = 500_000_000
"""Memory that the CUDA context of a process takes on its GPU: 300 to 500 MB, by GPU and driver."""

VECTORS = 2
"""Copies of the model on the GPU: its parameters, and the gradient; more for several at once."""

ROUNDING = 1e-9
"""Of a sum of shares, such as ten times 0.1."""


def deal_gpus(plan: Plan, found: Sequence[Gpu], *, vector: int) -> Plan:
    """Return the plan with a GPU, or several, for every node that has any.

    Nodes with whole GPUs come first, then those with the largest shares; each gets the GPU with the
    least dealt of it, so that shares are spread over all GPUs.

    Args:
        plan: the plan of a run.
        found: the host's GPUs.
        vector: bytes of a copy of the model; 0 if it is unknown.

    Raises:
        HostError: there are too few GPUs, or the share of a node has no room for its context and
            the model.
    """
    free = dict.fromkeys(found, 1.0)
    dealt: dict[str, NodeSpec] = {}
    for node in sorted(plan.nodes, key=lambda node: -node.gpus):
        if node.gpus:
            dealt[node.name] = _deal(node, free, vector)
    return replace(plan, nodes=tuple(dealt.get(node.name, node) for node in plan.nodes))


def _deal(node: NodeSpec, free: dict[Gpu, float], vector: int) -> NodeSpec:
    """Deal a node its GPUs out of what is ``free`` of each."""
    if not free:
        raise HostError(
            f"{node.full_name}: gpus {node.gpus:g}, but this host has no NVIDIA GPU: nvidia-smi "
            "finds none.",
            hint="Set gpus to 0, or use a host with a GPU and NVIDIA's driver.",
        )
    share = min(node.gpus, 1.0)
    fitting = [gpu for gpu in free if free[gpu] >= share - ROUNDING]
    fitting.sort(key=lambda gpu: -free[gpu])
    given = tuple(fitting[: ceil(node.gpus)])
    if len(given) < node.gpus:
        raise HostError(
            f"{node.full_name}: gpus {node.gpus:g}, but {_left(free)}.",
            hint="Use fewer workers, or a smaller share: gpus: 0.25 lets four workers share a GPU.",
        )
    for gpu in given:
        free[gpu] -= share
    vectors = (VECTORS + vectors_at_once(node.at_once)) * vector
    least = CONTEXT_BYTES + vectors
    memory = min(gpu.memory for gpu in given)
    if share * memory < least:
        most = int(memory // least)
        cure = f"At most {most:,} nodes can share this GPU." if most else "Use a larger GPU."
        raise HostError(
            f"{node.full_name}: gpus {node.gpus:g} is {megabytes(share * memory)} of "
            f"GPU {given[0].index}, expected at least {megabytes(least)}: "
            f"{megabytes(CONTEXT_BYTES)} for its CUDA context, and {megabytes(vectors)} for "
            f"{_models(node)}.",
            hint=f"Set a smaller vmap. {cure}" if node.at_once > 1 else cure,
        )
    own = 1.0 if share == 1 else share - CONTEXT_BYTES / memory
    return replace(node, dealt=given, gpu_memory=own)


def _models(node: NodeSpec) -> str:
    return f"{node.at_once:,} gradients at once" if node.at_once > 1 else "the model"


def _left(free: dict[Gpu, float]) -> str:
    parts = (f"{left:.3g} of GPU {gpu.index}" for gpu, left in free.items() if left > ROUNDING)
    return f"of this host's {len(free)} there is left: {', '.join(parts) or 'nothing'}"


def holders(plan: Plan) -> Iterator[tuple[Gpu, tuple[NodeSpec, ...]]]:
    """Yield every GPU that was dealt, and the nodes that have it, by index."""
    gpus = {gpu for node in plan.nodes for gpu in node.dealt}
    for gpu in sorted(gpus, key=lambda gpu: gpu.index):
        yield gpu, tuple(node for node in plan.nodes if gpu in node.dealt)
