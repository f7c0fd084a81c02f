"""Segmentation offloads of a link's two ends.

With offloads, TCP passes on packets of up to 64 KB that are segmented only when they leave an
interface, after its qdisc. netem counts and drops such a packet as one: if a link loses packets,
offloads are off. They are also off for a rate combined with a delay: a token bucket below a netem
segments packets, and kernels before 2025 never remove the segments from netem's count, until it
accepts no more. Otherwise they stay on: without them, the model of a pull is some 600 packets.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from socket import socket

from testbed.errors import NodeError
from testbed.host.syscalls import ethtool
from testbed.values.topology import LinkSpec, NetworkSpec, NodeSpec, Offload, Plan

GET = {"tso": 0x1E, "gso": 0x23, "gro": 0x2B}
SET = {"tso": 0x1F, "gso": 0x24, "gro": 0x2C}


@dataclass(frozen=True)
class Offloads:
    """The work that one interface defers.

    Attributes:
        tso: TCP segmentation by the device.
        gso: segmentation in software just before the device.
        gro: received segments are merged again.
    """

    tso: bool
    gso: bool
    gro: bool


def network_for(node: NodeSpec, plan: Plan) -> NetworkSpec:
    """Return the plan's network with ``offload: auto`` resolved for one node.

    It is off for a node whose link needs single packets, and for the PS if any worker's link
    does: packets from the PS are segmented at the PS's end or not before the worker's qdisc.
    """
    if plan.network.offload != "auto":
        return plan.network
    concerned = plan.nodes if node.part == "server" else (node,)
    single = any(needs_packets(other.link) for other in concerned if other.link is not None)
    return replace(plan.network, offload="off" if single else "on")


def needs_packets(link: LinkSpec) -> bool:
    """Return whether either direction loses packets, or has a token bucket below a netem."""
    return any(
        bool(shape.loss) or (shape.needs_netem and shape.rate is not None)
        for shape in (link.up, link.down)
    )


def set_offloads(control: socket, interface: str, *, offload: Offload, where: str) -> None:
    """Set the offloads of an interface, read them back and compare.

    Args:
        control: any socket that was opened in the interface's network namespace.
        offload: ``off`` for all three, ``on`` for segmentation; ``auto`` leaves them unchanged.
        where: node and direction, for the message.

    Raises:
        NodeError: an offload does not have the value that was set.
        OSError: no such interface.
    """
    settings = {"auto": {}, "on": {"gso": True, "tso": True}, "off": dict.fromkeys(SET, False)}
    wanted = settings[offload]
    for name, value in wanted.items():
        ethtool(control, interface, SET[name], int(value))
    found = asdict(read_offloads(control, interface))
    for name, value in wanted.items():
        if found[name] != value:
            raise NodeError(f"{where}: {name} was set {offload}, but the kernel has {found[name]}")


def read_offloads(control: socket, interface: str) -> Offloads:
    """Return the offloads of an interface; see set_offloads for ``control``."""
    return Offloads(**{name: bool(ethtool(control, interface, GET[name])) for name in GET})
