"""Segmentation offloads of a link's two ends.

With them TCP hands over packets of up to 64 KB that are cut only when they leave an interface,
behind its qdisc. netem counts and loses such a packet as one: where a link loses packets they are
off. They are off too where a rate stands beside a delay: a token bucket below a netem cuts packets,
and kernels of before 2025 then count those pieces in netem for ever, until it takes no packet more.
Everywhere else they are left on: off, the model of a pull is some 600 packets to be handled.
"""

from __future__ import annotations

import array
import fcntl
import struct
from dataclasses import asdict, dataclass, replace
from socket import socket

from testbed.errors import NodeError
from testbed.topology import LinkSpec, NetworkSpec, NodeSpec, Offload, Plan

SIOCETHTOOL = 0x8946
GET = {"tso": 0x1E, "gso": 0x23, "gro": 0x2B}
SET = {"tso": 0x1F, "gso": 0x24, "gro": 0x2C}


@dataclass(frozen=True)
class Offloads:
    """What one interface leaves to later.

    Attributes:
        tso: TCP segmentation by the device.
        gso: segmentation in software just before the device.
        gro: received segments joined again.
    """

    tso: bool
    gso: bool
    gro: bool


def network_for(node: NodeSpec, plan: Plan) -> NetworkSpec:
    """The plan's network with ``offload: auto`` decided for one node.

    It is off for a node whose link needs single packets, and for the PS as soon as any worker's
    does: what the PS sends is cut at the PS's end or not at all before it meets the worker's qdisc.
    """
    if plan.network.offload != "auto":
        return plan.network
    concerned = plan.nodes if node.part == "server" else (node,)
    single = any(needs_packets(other.link) for other in concerned if other.link is not None)
    return replace(plan.network, offload="off" if single else "on")


def needs_packets(link: LinkSpec) -> bool:
    """Whether either direction loses packets, or passes them from a netem to a token bucket."""
    return any(
        bool(shape.loss) or (shape.needs_netem and shape.rate is not None)
        for shape in (link.up, link.down)
    )


def set_offloads(control: socket, interface: str, *, offload: Offload, where: str) -> None:
    """Switch the offloads of an interface, read them back and compare.

    Args:
        control: any socket that was opened in the interface's network namespace.
        offload: ``off`` for all three, ``on`` for segmentation; ``auto`` leaves them as they are.
        where: node and direction, for the message.

    Raises:
        NodeError: an offload is not as it was set.
        OSError: no such interface.
    """
    settings = {"auto": {}, "on": {"gso": True, "tso": True}, "off": dict.fromkeys(SET, False)}
    wanted = settings[offload]
    for name, value in wanted.items():
        _ethtool(control, interface, SET[name], int(value))
    found = asdict(read_offloads(control, interface))
    for name, value in wanted.items():
        if found[name] != value:
            raise NodeError(f"{where}: {name} was switched {offload}, the kernel has {found[name]}")


def read_offloads(control: socket, interface: str) -> Offloads:
    """The offloads of an interface; see set_offloads for ``control``."""
    return Offloads(**{name: bool(_ethtool(control, interface, GET[name], 0)) for name in GET})


def _ethtool(control: socket, interface: str, command: int, value: int) -> int:
    """One struct ethtool_value through a struct ifreq that points at it."""
    exchanged = array.array("I", (command, value))
    request = struct.pack("16sP", interface.encode(), exchanged.buffer_info()[0])
    fcntl.ioctl(control, SIOCETHTOOL, request)
    return exchanged[1]
