"""What a plan needs of the host: private memory per node, CPUs, and updates per second.

The memory figures are estimates from measurements: a worker forked from a process that has imported
everything has about 20 MB in addition to its vectors, a cold process 150 MB, and an engine keeps
processes of its own for every container. The CPU time of an update is unknown before one has run,
so only limits and the pace that the scenario sets are shown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from testbed.errors import HostError
from testbed.plan.nodes import role_of
from testbed.scenario.devices import devices
from testbed.scenario.schema import Scenario
from testbed.values.topology import NodeSpec, Plan

AGENT_BYTES = 250_000_000
"""The agent's template: what all warm workers share."""

BYTES_PER_PARAMETER = 4
CHECKPOINT_COPIES = 3
"""Copies of its vectors while a server saves them: its own, a copy, and the file's bytes."""


@dataclass(frozen=True)
class Budget:
    """The requirements of a run; bytes are private memory, estimated."""

    parameters: int | None  # of the model; None where only user code knows it
    node_bytes: Mapping[str, int]  # of one node of each role, at most
    agent_bytes: int  # of the agent, if workers are forked warm
    total_bytes: int  # of all nodes
    cpu_limits: float  # sum of the CPUs that nodes are limited to
    unlimited_nodes: int  # nodes without a CPU limit
    # the maximum, in real time, at the scenario's pace; None if a worker is not paced
    updates_per_second: float | None


def budget(scenario: Scenario, plan: Plan, parameters: int | None) -> Budget:
    """Return the budget of a plan for a number of parameters (None: unknown, counted as 0)."""
    container = scenario.runtime.capabilities.container_bytes
    vector = BYTES_PER_PARAMETER * (parameters or 0)
    saved = 1 if scenario.checkpoint is None else CHECKPOINT_COPIES
    each = [
        (
            node.role,
            container
            + role_of(node).memory_bytes(
                node, plan, vector=vector * (saved if node.part == "server" else 1)
            ),
        )
        for node in plan.nodes
    ]
    node_bytes: dict[str, int] = {}
    for role, size in each:
        node_bytes[role] = max(size, node_bytes.get(role, 0))
    agent = container + (AGENT_BYTES if plan.launch == "warm" else 0)
    return Budget(
        parameters=parameters,
        node_bytes=node_bytes,
        agent_bytes=agent,
        total_bytes=sum(size for _, size in each) + agent,
        cpu_limits=sum(node.cpu or 0 for node in plan.nodes),
        unlimited_nodes=sum(node.cpu is None for node in plan.nodes),
        updates_per_second=_pace(scenario, plan.workers),
    )


def require_memory(
    scenario: Scenario, plan: Plan, *, available: int, parameters: int | None = None
) -> None:
    """Reject a run that needs more than the available bytes of memory.

    The number of the model's ``parameters`` is determined if it is not given.

    Raises:
        HostError: it is not enough; says for how many workers it would be.
    """
    workers = scenario.workers.count
    needs = budget(scenario, plan, parameters or count_parameters(scenario))
    if needs.total_bytes <= available:
        return
    worker = needs.node_bytes["worker"]
    one_more = worker + BYTES_PER_PARAMETER * (needs.parameters or 0)
    fixed = needs.total_bytes - workers * one_more
    most = max(0, (available - fixed) // one_more)
    hint = f"Use fewer workers: --workers {most}" if most else "Use a host with more memory"
    raise HostError(
        f"not enough memory for {workers:,} workers: about "
        f"{needs.total_bytes / 1e6:,.0f} MB needed ({worker / 1e6:,.0f} MB per worker), "
        f"{available / 1e6:,.0f} MB available.",
        hint=f"{hint}; `testbed plan` shows the estimate.",
    )


def count_parameters(scenario: Scenario) -> int | None:
    """Return the number of the model's parameters; None if only the user's own code defines it."""
    images = scenario.dataset.images
    return None if images is None else scenario.model.parameters(*images)


def _pace(scenario: Scenario, workers: tuple[NodeSpec, ...]) -> float | None:
    """Return the updates per real second if steps take exactly their `speed`, and links no time.

    None if a class has neither a speed nor a think time.
    """
    pace, own, batch = 0.0, devices(scenario), scenario.workers.batch_size
    for node in workers:
        think = scenario.workers.think_of(node.device_class)
        thinking = 0.0 if think is None else float(think.mean)
        step = own[node.index].pace
        cycle = thinking + (0.0 if step is None else step.mean(batch))
        if cycle == 0:
            return None
        pace += scenario.time_scale / cycle
    return pace
