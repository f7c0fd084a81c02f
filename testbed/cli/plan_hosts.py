"""What ``testbed plan`` shows of the hosts of a Swarm: which nodes each has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from testbed.plan.budget import Budget
    from testbed.scenario import Scenario
    from testbed.values.topology import Plan


@dataclass(frozen=True)
class Placed:
    """A plan with its hosts.

    Attributes:
        plan: the plan; without hosts if it has none, or they are refused.
        refused: why `up` would refuse it; empty if it would not.
        left_out: a line about every host that is left out.
    """

    plan: Plan
    refused: str = ""
    left_out: tuple[str, ...] = ()

    def as_data(self) -> dict[str, Any]:
        """Return what there is of hosts, as plain data."""
        found = {"hosts": [asdict(host) for host in self.plan.hosts], "left_out": self.left_out}
        return {name: value for name, value in found.items() if value}


def place(scenario: Scenario, made: Plan, parameters: int | None) -> Placed:
    """Return the plan with its hosts, if the scenario asks for those of a Swarm."""
    from testbed.errors import HostError
    from testbed.runtimes import Docker

    if not isinstance(scenario.runtime, Docker) or scenario.runtime.swarm is None:
        return Placed(made)
    from testbed.run.hosts import place_on_hosts

    left_out: list[str] = []
    try:
        made = place_on_hosts(scenario, made, parameters, say=left_out.append)
    except HostError as error:
        return Placed(made, str(error), tuple(left_out))
    return Placed(made, left_out=tuple(left_out))


def host_lines(placed: Placed, needs: Budget) -> Iterator[str]:
    """Yield the nodes of every host and what they need of it."""
    for text in placed.left_out:
        yield f"hosts   {text}"
    if placed.refused:
        yield f"hosts   `testbed up` will refuse this: {placed.refused}"
    for host in placed.plan.hosts:
        nodes = placed.plan.on(host)
        size = needs.agent_bytes + sum(needs.node_bytes[node.role] for node in nodes)
        memory = "" if host.memory is None else f" of {host.memory / 1e6:,.0f} MB"
        names = [node.name for node in nodes if node.part != "client"]
        classes = Counter(node.device_class for node in nodes if node.part == "client")
        names += [f"{count:,} of class {name}" for name, count in classes.items()]
        name = f"{host.name} (this one)" if host.here else host.name
        yield (
            f"host    {name}: {', '.join(names) or 'no node'}; "
            f"about {size / 1e6:,.0f} MB{memory}, {host.cpus:g} CPUs"
        )
