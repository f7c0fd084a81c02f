"""What ``testbed plan`` shows of the hosts of a Swarm: which nodes each has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from testbed.plan.budget import Budget
    from testbed.scenario import Scenario
    from testbed.values.topology import Plan


def place(scenario: Scenario, made: Plan, parameters: int | None) -> tuple[Plan, str]:
    """Return the plan with its hosts, and why `up` would refuse it, or an empty string."""
    from testbed.errors import HostError
    from testbed.runtimes import Docker

    if not isinstance(scenario.runtime, Docker) or scenario.runtime.swarm is None:
        return made, ""
    from testbed.run.hosts import place_on_hosts

    try:
        return place_on_hosts(scenario, made, parameters), ""
    except HostError as error:
        return made, str(error)


def host_lines(made: Plan, needs: Budget, refused: str) -> Iterator[str]:
    """Yield the nodes of every host and what they need of it."""
    if refused:
        yield f"hosts   `testbed up` will refuse this: {refused}"
    for host in made.hosts:
        nodes = made.on(host)
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
