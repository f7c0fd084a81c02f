"""The hosts of a run in a Swarm: checked, and given their nodes and the image."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.errors import HostError
from testbed.plan.budget import budget
from testbed.plan.placement import check_fit, place
from testbed.runtimes import Docker
from testbed.scenario.schema import Scenario
from testbed.values.topology import HostSpec, NodeSpec, Plan

if TYPE_CHECKING:
    from testbed.runtimes.docker.swarm import SwarmHost


def place_on_hosts(
    scenario: Scenario, plan: Plan, parameters: int | None, *, say: Callable[[str], None]
) -> Plan:
    """Return the plan with a host for every node, if the scenario asks for those of a Swarm.

    ``say`` is called with every host that is left out.

    Raises:
        HostError: this host manages no Swarm, or one of its hosts cannot carry nodes, or the nodes
            do not fit on them.
    """
    runtime = scenario.runtime
    if not isinstance(runtime, Docker) or runtime.swarm is None:
        return plan
    needs, agent_bytes = _sizes(scenario, plan, parameters)
    hosts = find_usable()
    left_out = [(host.spec, host.left_out) for host in hosts if host.left_out]
    for host, why in left_out:
        say(f"host {host.name} is left out: {why}")
    return place(
        plan,
        [host.spec for host in hosts if not host.left_out],
        runtime.swarm,
        needs=needs,
        agent_bytes=agent_bytes,
        left_out=left_out,
    )


def require_memory_on_hosts(scenario: Scenario, plan: Plan, parameters: int | None) -> None:
    """Reject a plan whose nodes do not fit on their hosts, once the model's size is known.

    Raises:
        HostError: a host has too little memory; names it.
    """
    needs, agent_bytes = _sizes(scenario, plan, parameters)
    check_fit(plan, needs=needs, agent_bytes=agent_bytes)


def _sizes(
    scenario: Scenario, plan: Plan, parameters: int | None
) -> tuple[Callable[[NodeSpec], int], int]:
    """Return the memory of a node, and that of an agent."""
    sizes = budget(scenario, plan, parameters)
    return lambda node: sizes.node_bytes[node.role], sizes.agent_bytes


def find_usable() -> tuple[SwarmHost, ...]:
    """Return the hosts of the Swarm, this one first, with those that a run leaves out.

    Raises:
        HostError: there is none, or one lacks something; names it and how to fix it.
    """
    from testbed.runtimes.docker.swarm import find_hosts

    hosts = find_hosts()
    for host in hosts:
        lacks = host.lacks or ((host.left_out,) if host.here and host.left_out else ())
        if lacks:
            raise HostError(
                f"host {host.name} of the Swarm cannot carry nodes: {lacks[0]}.",
                hint=_cure(host, lacks[0]),
            )
    return hosts


def _cure(host: SwarmHost, lack: str) -> str:
    if host.here or host.drain in lack:
        return "Fix that."
    return f"Fix that, or drain it ({host.drain})."


def check_hosts(plan: Plan) -> None:
    """Reject nodes that need what the engine of their host, if it is another one, cannot provide.

    Raises:
        HostError: one does, or an engine does not answer; names the host.
    """
    from testbed.runtimes.docker.abilities import check_abilities
    from testbed.runtimes.docker.engine import describe
    from testbed.runtimes.docker.remote import naming

    for host in plan.hosts:
        if not host.here:
            with naming(host):
                check_abilities(plan.on(host), describe(host.engine), here=False)


def copy_image_to(hosts: Sequence[HostSpec], image: str, *, phase: Callable[[str], None]) -> None:
    """Copy an image, by its ID, from this host's engine to those that lack it.

    Raises:
        HostError: an engine does not answer, or has no space.
    """
    from testbed.runtimes.docker.copies import COPY_SECONDS, copy_image
    from testbed.runtimes.docker.engine import connect
    from testbed.runtimes.docker.remote import naming

    # An engine is silent while it writes the layers to its disk.
    slowly = partial(connect, call_seconds=COPY_SECONDS)
    for host in hosts:
        if not host.here:
            with naming(host), slowly() as here, slowly(host.engine) as there:
                copy_image(here, there, image, phase=phase, to=host.name)


def copy_data_to(
    hosts: Sequence[HostSpec], data: Path, image: str, *, phase: Callable[[str], None]
) -> None:
    """Copy a prepared data set to the hosts that lack it; they have the image with this ID.

    Raises:
        DataError: it is damaged.
        HostError, NodeError: an engine does not answer, or has no space, or the copy differs.
    """
    from testbed.runtimes.docker.copies import COPY_SECONDS, copy_data
    from testbed.runtimes.docker.engine import connect
    from testbed.runtimes.docker.remote import naming

    for host in hosts:
        if not host.here:
            with naming(host), connect(host.engine, call_seconds=COPY_SECONDS) as engine:
                copy_data(engine, host, data, image, phase=phase)
