"""The connection to the agents of a run: one on each of its hosts.

Here rather than in ``hosts``, so that what only asks agents does not import scenarios: that takes
0.5 s of CPU, which is long for ``testbed ps`` on a busy host.
"""

from __future__ import annotations

from contextlib import nullcontext

from testbed.errors import TestbedError
from testbed.runtimes.agent.client import AgentClient, Waiting
from testbed.runtimes.agent.hosts import HostAgents
from testbed.telemetry.folder import RunFolder
from testbed.values.topology import Plan


def connect(
    plan: Plan | None,
    folder: RunFolder,
    *,
    deadline: float,
    waiting: Waiting = nullcontext,
    controls: bool = False,
) -> AgentClient:
    """Return a client of the agents of a run; see ``AgentClient.connect``.

    A run whose folder has no plan is on this host alone.

    Args:
        plan, folder: of the run.
        deadline, waiting: as for an agent on this host.
        controls: whether this process controls the run: then all hosts must be reached, and those
            that the Swarm drains are left.
    """
    here = AgentClient.connect(folder.agent_socket, deadline=deadline, waiting=waiting)
    if plan is None or not plan.hosts:
        return here
    from testbed.runtimes import Docker
    from testbed.runtimes.docker.remote import connect_agent
    from testbed.runtimes.docker.swarm import DrainedHosts

    agents, lost = {plan.hosts[0].name: here}, {}
    try:
        for host in plan.hosts[1:]:
            try:
                agents[host.name] = connect_agent(host, folder, waiting=waiting)
            except TestbedError as error:
                if controls:
                    raise
                named = f"host {host.name}: "
                lost[host.name] = error.message.removeprefix(named).rstrip(".")
    except BaseException:
        for agent in agents.values():
            agent.close()
        raise
    runtime = Docker.model_validate(plan.runtime)
    return HostAgents(
        agents,
        {node.name: node.host for node in plan.nodes},
        here=plan.hosts[0].name,
        server=plan.server_host if controls else "",
        records=folder if controls else None,
        goes_on=not controls,
        goes_on_later=runtime.swarm is not None and runtime.swarm.on_lost == "continue",
        drained=DrainedHosts() if controls else dict,
        lost=lost,
    )
