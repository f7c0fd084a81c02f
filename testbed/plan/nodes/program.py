"""Programs: any command as a node of its own, beside a training or as a workload."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from testbed.plan.nodes.base import (
    FIRST_WORKER_UID,
    INSIDE,
    Role,
    address_of,
    link_at,
)
from testbed.scenario.links import linked_nodes, resolve
from testbed.scenario.schema import Scenario
from testbed.scenario.workload import Program, Workload
from testbed.scenario.workload_links import node_links
from testbed.scenario.workload_names import fill, placed
from testbed.values.fields import with_tag
from testbed.values.topology import SCRATCH, NodeSpec, Plan

HOME = INSIDE / "home"
FILES = INSIDE / "files"
"""A workload's node's own folder, in which it starts, and what it was given to read."""

SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""Where programs are found after those of the user's Python environment."""


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
                image=_image(program.image),
                command=resolve(program.command, addresses),
            )

    def workload_nodes(self, workload: Workload) -> Iterator[NodeSpec]:
        """Yield the nodes of a workload; all of them are peers, and have a home of their own."""
        nodes, links = placed(workload), node_links(workload)
        addresses = {one.name: address_of(number)[0] for number, one in enumerate(nodes)}
        for number, own in enumerate(nodes):
            program = workload.workload[own.program]
            device_class, one = program.node_classes(own.program)[own.index]
            filled = {
                key: fill(text, own, workload, addresses)
                for key, text in program.environment.items()
            }
            yield NodeSpec(
                name=own.name,
                role=self.name,
                index=own.index,
                device_class=device_class,
                link=link_at(number, workload, links[number], switch=one.switch or program.switch),
                cpu=one.cpu or program.cpu,
                cpuset=one.cpuset or program.cpuset,
                memory=one.memory or program.memory,
                scratch=program.scratch or SCRATCH,
                folders=program.folders,
                cpu_weight=program.cpu_weight,
                uid=FIRST_WORKER_UID + number,
                gpus=program.gpus_of(one),
                part="peer",
                end=program.end,
                command=tuple(fill(word, own, workload, addresses) for word in program.command),
                environment={"HOME": str(HOME), **_python(program), **filled},
                files=program.files,
                image=_image(program.image),
                when_absent=program.absence(one),
            )

    def memory_bytes(self, node: NodeSpec, plan: Plan, *, vector: int) -> int:
        """Return its limit, if it has one."""
        return self.other_bytes if node.memory is None else int(node.memory)


def _image(name: str | None) -> str:
    """Return ``NodeSpec.image`` for the image that a program names."""
    return "nodes" if name is None else with_tag(name)


def _python(program: Program) -> Mapping[str, str]:
    """Return the variables with which the programs of a Python environment come first."""
    if program.python is None:
        return {}
    own = Path(program.python)
    return {"VIRTUAL_ENV": str(own), "PATH": f"{own / 'bin'}:{SYSTEM_PATH}"}
