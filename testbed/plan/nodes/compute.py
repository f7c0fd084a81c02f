"""The node that computes the gradients of all workers, with ``compute: shared``."""

from __future__ import annotations

from collections.abc import Iterator

from testbed.host.limits import SERVICE_WEIGHT
from testbed.models.compute import vectors_at_once
from testbed.plan.nodes.base import (
    COMPUTE_UID,
    CUDA_BYTES,
    INSIDE,
    PYTHON_BYTES,
    Inputs,
    Role,
)
from testbed.runtimes.agent.launch import Mount
from testbed.scenario.compute import choose
from testbed.scenario.schema import Scenario
from testbed.scenario.settings import Shared
from testbed.values.topology import NodeSpec, Plan
from testbed.values.units import Size

PROCESS_BYTES = 30_000_000
"""Private memory of one of its processes, in addition to its vectors. Measured."""

FOLDER = INSIDE / "compute"
"""The folder of its socket, in its node and in the workers'."""


def shares_compute(plan: Plan) -> bool:
    """Whether a node computes the gradients of all workers."""
    return any(node.role == ComputeRole.name for node in plan.nodes)


class ComputeRole(Role):
    """Has no link: the workers reach it through a unix socket, and share memory with it."""

    name = "compute"
    entry = "testbed.roles.compute:main"
    cpu_weight = SERVICE_WEIGHT
    vectors = 2
    saves_memory = "fewer `compute.processes`, or a smaller `compute.vmap` or `workers.batch_size`"

    def nodes(self, scenario: Scenario) -> Iterator[NodeSpec]:
        """Yield the node, if the scenario has one; the estimate of its memory is this host's."""
        shared = choose(scenario).compute
        if not isinstance(shared, Shared):
            return
        yield NodeSpec(
            name=self.name,
            role=self.name,
            index=0,
            device_class="",
            link=None,
            cpu=None,
            memory=None,
            cpu_weight=self.cpu_weight,
            uid=COMPUTE_UID,
            end="restarted",
            memory_estimate=Size(shared.process_count * PROCESS_BYTES),
            gpus=shared.gpus,
            at_once=shared.vmap,
        )

    def mounts(self, inputs: Inputs) -> tuple[Mount, ...]:
        """Return the defaults, and the folder in which it creates its socket."""
        own = Mount(inputs.folder.compute_sockets, FOLDER, writable=True)
        return (*super().mounts(inputs), own)

    def memory_bytes(self, node: NodeSpec, plan: Plan, *, vector: int) -> int:
        """Return the memory of its processes; what it shares with workers is counted as theirs.

        With GPUs, each process has a CUDA context, and all are forked from one that starts cold.
        """
        processes = int(node.memory_estimate or 0) // PROCESS_BYTES
        vectors = self.vectors + vectors_at_once(node.at_once)
        each = PROCESS_BYTES + (CUDA_BYTES if node.gpus else 0) + vectors * vector
        return processes * each + (PYTHON_BYTES["cold"] if node.gpus else 0)
