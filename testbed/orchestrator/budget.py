"""What a plan will ask of the host: memory of its own per node, CPUs, and updates per second.

The memory figures are estimates from measurements: a worker forked from a process that has imported
everything has about 20 MB of its own beside its vectors, a cold process 150 MB, and an engine keeps
processes of its own for every container. The CPU an update takes is not known before one has run,
so only limits and the pace that the scenario sets are shown.
"""

from __future__ import annotations

from dataclasses import dataclass

from testbed.scenario.schema import Scenario
from testbed.topology import Launch, NodeSpec, Plan

OWN_BYTES: dict[Launch, int] = {"warm": 20_000_000, "cold": 150_000_000}
AGENT_BYTES = 250_000_000
"""The agent's template: what all warm workers share."""

CONTAINER_BYTES = {"docker": 8_000_000, "auto": 8_000_000}
"""What an engine keeps for each container: a shim, and the container's first process."""

BYTES_PER_PARAMETER = 4
WORKER_VECTORS = 4
"""Model, gradient, the reply as it comes in, and room to select in."""

PS_VECTORS = 6
"""Model, counters, the reply as it goes out, and pushes being applied; one more per worker."""

EVALUATOR_VECTORS = 3
EVALUATION_BYTES = 20_000_000


@dataclass(frozen=True)
class Budget:
    """What a run needs; bytes are private memory, estimated.

    Attributes:
        parameters: of the model; None where only the user's own code knows.
        worker_bytes: of one worker.
        ps_bytes: of the parameter server.
        evaluator_bytes: of the evaluator.
        agent_bytes: of the agent, where workers are forked warm.
        total_bytes: of all nodes.
        cpu_limits: sum of the CPUs that nodes are limited to.
        unlimited_nodes: nodes without a CPU limit.
        updates_per_second: the most, in real time, that the scenario's pace allows; None where some
            workers are not paced.
    """

    parameters: int | None
    worker_bytes: int
    ps_bytes: int
    evaluator_bytes: int
    agent_bytes: int
    total_bytes: int
    cpu_limits: float
    unlimited_nodes: int
    updates_per_second: float | None


def budget(scenario: Scenario, plan: Plan, parameters: int | None) -> Budget:
    """The budget of a plan for a model with so many parameters (None: unknown, counted as 0)."""
    container = CONTAINER_BYTES.get(scenario.runtime.name, 0)
    own = OWN_BYTES[plan.launch] + container
    vector = BYTES_PER_PARAMETER * (parameters or 0)
    workers = len(plan.workers)
    worker = own + WORKER_VECTORS * vector
    ps = own + (PS_VECTORS + workers) * vector
    evaluator = own + EVALUATOR_VECTORS * vector + EVALUATION_BYTES
    agent = container + (AGENT_BYTES if plan.launch == "warm" else 0)
    return Budget(
        parameters=parameters,
        worker_bytes=worker,
        ps_bytes=ps,
        evaluator_bytes=evaluator,
        agent_bytes=agent,
        total_bytes=workers * worker + ps + evaluator + agent,
        cpu_limits=sum(node.cpu or 0 for node in plan.nodes),
        unlimited_nodes=sum(node.cpu is None for node in plan.nodes),
        updates_per_second=_pace(scenario, plan.workers),
    )


def _pace(scenario: Scenario, workers: tuple[NodeSpec, ...]) -> float | None:
    """Updates a second if computing took no longer than `speed` says and links cost no time."""
    think = scenario.workers.think
    thinking = float(think.mean) if think is not None else 0.0
    pace = 0.0
    for node in workers:
        speed = scenario.workers.classes[node.device_class].speed
        cycle = thinking + float(speed or 0)
        if cycle == 0:
            return None
        pace += scenario.time_scale / cycle
    return pace
