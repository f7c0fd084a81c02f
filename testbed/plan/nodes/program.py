"""Programs: any command as a node of its own, such as cross traffic during training."""

from __future__ import annotations

from collections.abc import Iterator

from testbed.plan.nodes.base import FIRST_WORKER_UID, Role, address_of, link_at
from testbed.scenario.links import linked_nodes, resolve
from testbed.scenario.schema import Scenario
from testbed.values.topology import SCRATCH, NodeSpec, Plan


class ProgramRole(Role):
    """The scenario defines its command and what its end means; it sees nothing of the run."""

    name = "program"
    reads_run = False
    needs = ("ps",)
    other_bytes = 10_000_000  # of a small one; its own limit is a better estimate

    def nodes(self, scenario: Scenario) -> Iterator[NodeSpec]:
        """Yield them in the scenario's order; their addresses and uids follow the workers'."""
        numbers = linked_nodes(scenario) if scenario.programs else {}
        addresses = {name: address_of(number)[0] for name, number in numbers.items()}
        for index, (name, program) in enumerate(scenario.programs.items()):
            yield NodeSpec(
                name=name,
                role=self.name,
                index=index,
                device_class="",
                link=link_at(numbers[name], scenario, program.link),
                cpu=program.cpu,
                cpuset=program.cpuset,
                memory=program.memory,
                scratch=program.scratch or SCRATCH,
                folders=program.folders,
                cpu_weight=self.cpu_weight,
                uid=FIRST_WORKER_UID + scenario.workers.count + index,
                end=program.end,
                command=resolve(program.command, addresses),
            )

    def memory_bytes(self, node: NodeSpec, plan: Plan, *, vector: int) -> int:
        """Return its limit, if it has one."""
        return self.other_bytes if node.memory is None else int(node.memory)
