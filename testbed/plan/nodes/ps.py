"""The parameter server: all workers talk to it, and the run ends with it."""

from __future__ import annotations

from collections.abc import Iterator

from testbed.host.limits import SERVICE_WEIGHT
from testbed.plan.nodes.base import INSIDE, PS_UID, Inputs, Role, link_at
from testbed.runtimes.agent.launch import Mount
from testbed.scenario.schema import Scenario
from testbed.telemetry.ps_events import Listening
from testbed.values.topology import SCRATCH, NodeSpec, Plan

PORT = 5000


class ParameterServerRole(Role):
    """Holds the model, and its vectors: counters, the outgoing reply, pushes being applied."""

    name = "ps"
    part = "server"
    entry = "testbed.roles.ps:main"
    cpu_weight = SERVICE_WEIGHT
    reports = Listening
    opens_socket = True
    vectors = 6

    def nodes(self, scenario: Scenario) -> Iterator[NodeSpec]:
        yield NodeSpec(
            name="ps",
            role=self.name,
            index=0,
            device_class="",
            link=link_at(0, scenario, scenario.ps.link),
            cpu=scenario.ps.cpu,
            cpuset=scenario.ps.cpuset,
            memory=scenario.ps.memory,
            scratch=scenario.ps.scratch or SCRATCH,
            cpu_weight=self.cpu_weight,
            uid=PS_UID,
            part=self.part,
        )

    def mounts(self, inputs: Inputs) -> tuple[Mount, ...]:
        """Return the defaults, and the folder for its records."""
        records = Mount(inputs.folder.ps, INSIDE / "ps", writable=True)
        return (*super().mounts(inputs), records)

    def memory_bytes(self, node: NodeSpec, plan: Plan, *, vector: int) -> int:
        """Add one vector for every worker: the model at its last pull."""
        return super().memory_bytes(node, plan, vector=vector) + len(plan.workers) * vector
