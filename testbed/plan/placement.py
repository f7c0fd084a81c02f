"""Which node is on which host of a Swarm. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import inf

from testbed.errors import HostError
from testbed.network.tunnel import VXLAN_HEADER_BYTES
from testbed.plan.nodes import role_of
from testbed.runtimes.docker import SERVER, Swarm
from testbed.values.topology import DEFAULT_MTU, HostSpec, NodeSpec, Plan

MOST_LINKS = 1022
"""Ports of a bridge, less the tunnel's."""

Bytes = Callable[[NodeSpec], int]
"""Returns the memory that a node is expected to need."""


def place(
    plan: Plan,
    hosts: Sequence[HostSpec],
    swarm: Swarm,
    *,
    needs: Bytes,
    agent_bytes: int = 0,
    left_out: Sequence[tuple[HostSpec, str]] = (),
) -> Plan:
    """Return the plan with a host for every node: workers by class, all others on this one.

    A parameter server that is placed has the nodes that open its socket on its host.

    Of the hosts, it has this one and those with nodes.

    Links have an MTU that leaves room for the tunnel's headers, unless the scenario sets one.

    Args:
        plan: the plan of a run on one host.
        hosts: those of the Swarm, this one first.
        swarm: the scenario's wishes.
        needs: the memory of a node.
        agent_bytes: that of the agent of a host.
        left_out: hosts that are drained, paused or down, each with why and how to fix it.

    Raises:
        HostError: no host has a label, or one has too little memory, or too few ports.
    """
    here = hosts[0]
    used = {host.name: agent_bytes for host in hosts}
    count = {host.name: 0 for host in hosts}
    links = {host.name: 0 for host in hosts}
    server, placed = here, []
    if SERVER in swarm.placement:
        able = _hosts_of(SERVER, hosts, swarm.placement, left_out=left_out)
        group = sum(needs(node) for node in plan.nodes if role_of(node).opens_socket)
        fitting = [host for host in able if used[host.name] + group <= _memory(host)]
        server = _choose(plan.ps, fitting or able, swarm, used=used, count=count, needs=needs)
    # Others first, whatever is left for workers.
    for node in sorted(plan.nodes, key=lambda node: node.part == "client"):
        host = server if role_of(node).opens_socket else here
        if node.part == "client":
            able = _hosts_of(node.device_class, hosts, swarm.placement, left_out=left_out)
            free = [one for one in able if links[one.name] < MOST_LINKS]
            host = _choose(node, free or able, swarm, used=used, count=count, needs=needs)
        used[host.name] += needs(node)
        count[host.name] += node.part == "client"
        links[host.name] += node.link is not None
        placed.append(_on(node, host))
    order = {node.name: number for number, node in enumerate(plan.nodes)}
    nodes = sorted(placed, key=lambda node: order[node.name])
    others = [host for host in hosts[1:] if any(node.host == host.name for node in nodes)]
    named = (here, *(replace(host, controller=here.name) for host in others))
    made = replace(plan, nodes=tuple(nodes), hosts=named)
    check_fit(made, needs=needs, agent_bytes=agent_bytes)
    return made


def _hosts_of(
    name: str,
    hosts: Sequence[HostSpec],
    placement: Mapping[str, str],
    *,
    left_out: Sequence[tuple[HostSpec, str]],
) -> list[HostSpec]:
    """Return the hosts that a class of workers, or the parameter server, may be on."""
    what = name if name == SERVER else f"class {name}"
    label = placement.get(name)
    if label is None:
        return list(hosts)
    able = [host for host in hosts if _has(host, label)]
    if not able:
        for host, why in left_out:
            if _has(host, label):
                raise HostError(
                    f"placement of {what}: the host {host.name}, which has the "
                    f"label {label}, is left out: {why}.",
                    hint="Fix that, or choose another label; `testbed hosts` shows them.",
                )
        raise HostError(
            f"placement of {what}: no host of the Swarm has the label {label}.",
            hint=f"docker node update --label-add {label} HOST; `testbed hosts` shows the labels.",
        )
    return able


def _has(host: HostSpec, label: str) -> bool:
    name, equals, wanted = label.partition("=")
    return name in host.labels and (not equals or host.labels[name] == wanted)


def _choose(
    node: NodeSpec,
    able: Sequence[HostSpec],
    swarm: Swarm,
    *,
    used: Mapping[str, int],
    count: Mapping[str, int],
    needs: Bytes,
) -> HostSpec:
    if swarm.strategy == "pack":
        size = needs(node)
        fitting = (host for host in able if used[host.name] + size <= _memory(host))
        return next(fitting, able[-1])
    return min(able, key=lambda host: count[host.name] / host.cpus)


def _on(node: NodeSpec, host: HostSpec) -> NodeSpec:
    link = node.link
    if link is not None and link.mtu is None:
        link = replace(link, mtu=DEFAULT_MTU - VXLAN_HEADER_BYTES)
    return replace(node, host=host.name, link=link)


def _memory(host: HostSpec) -> float:
    return inf if host.memory is None else host.memory


def check_fit(plan: Plan, *, needs: Bytes, agent_bytes: int = 0) -> None:
    """Reject a plan whose nodes do not fit on their hosts; the arguments are those of ``place``.

    Raises:
        HostError: a host has too little memory, or too few ports; names it.
    """
    cure = "Use fewer workers, more hosts, or another placement."
    for host in plan.hosts:
        nodes = plan.on(host)
        links = sum(node.link is not None for node in nodes)
        if links > MOST_LINKS:
            raise HostError(
                f"host {host.name}: {links:,} nodes with links, expected at most {MOST_LINKS:,}, "
                "the ports of a switch.",
                hint=cure,
            )
        used = agent_bytes + sum(map(needs, nodes))
        if used > _memory(host):
            raise HostError(
                f"host {host.name}: its nodes need about {used / 1e6:,.0f} MB, it has "
                f"{_memory(host) / 1e6:,.0f} MB.",
                hint=cure,
            )
