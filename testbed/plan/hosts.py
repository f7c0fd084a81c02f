"""The names of a run's nodes with their addresses, which every node has in /etc/hosts. Pure."""

from __future__ import annotations

from testbed.values.topology import Plan

LOOPBACK = "127.0.0.1"


def hosts_text(plan: Plan) -> str:
    """Return the content of /etc/hosts, the same for all nodes.

    A node without a link is reachable only from itself, so its name is the loopback address.
    """
    linked = (
        f"{LOOPBACK if node.link is None else node.link.address} {node.name}\n"
        for node in plan.nodes
    )
    return f"{LOOPBACK} localhost\n::1 localhost\n{''.join(linked)}"
