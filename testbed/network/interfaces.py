"""The two ends of a link: interfaces, accessed through sockets opened in their namespaces."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from errno import EINVAL
from ipaddress import IPv4Interface
from pathlib import Path
from typing import Any

from testbed.host.namespaces import inside
from testbed.host.syscalls import bring_interface_up, interface_index, interface_mtu

NEIGHBOUR_PERMANENT = 0x80
ADDRESS_NONE = 1
NO_IPV6_ADDRESS = {"attrs": [("AF_INET6", {"attrs": [("IFLA_INET6_ADDR_GEN_MODE", ADDRESS_NONE)]})]}

CONGESTION_CONTROL = "cubic"
"""Linux's default, which devices use unless configured otherwise."""

PROTOCOL_KERNEL, SCOPE_LINK = 2, 253
UNKNOWN_ALGORITHM = EINVAL


@dataclass(frozen=True)
class Neighbour:
    """The addresses of another node, for the ARP table of a node."""

    address: str
    mac: str
    host: str = ""  # address of its host, if that is another one


@dataclass(frozen=True)
class Sockets:
    """Access to one network namespace from any other.

    Attributes:
        ip: an open ``IPRoute``.
        control: a socket for ioctls.
    """

    ip: Any
    control: socket.socket

    def interface(self, name: str) -> Interface:
        """Return the interface with this name.

        Raises:
            OSError: there is no such interface.
        """
        return Interface(self.ip, self.control, name, interface_index(self.control, name))


@dataclass(frozen=True)
class Interface(Sockets):
    """A network interface at one end of a link, with sockets in the interface's namespace."""

    name: str
    index: int


@contextmanager
def sockets(pid: int | None = None) -> Iterator[Sockets]:
    """Yield sockets in the network namespace of process ``pid``, or in the current one.

    Raises:
        OSError: there is no such process, or entering its namespace is not permitted.
    """
    from pyroute2.iproute import IPRoute

    with ExitStack() as opened:
        with ExitStack() as there:
            if pid is not None:
                there.enter_context(inside(pid))
            control = opened.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
            ip = opened.enter_context(IPRoute(groups=0))
        yield Sockets(ip, control)


def mtu_of(interface: Interface) -> int:
    """Return an interface's MTU, as the kernel has it."""
    return interface_mtu(interface.control, interface.name)


def bring_up(interface: Interface) -> None:
    """Bring it up without an IPv6 address of its own, which would be announced on the link."""
    if Path("/proc/net/if_inet6").exists():
        interface.ip.link("set", index=interface.index, IFLA_AF_SPEC=NO_IPV6_ADDRESS)
    bring_interface_up(interface.control, interface.name)


def give_address(
    interface: Interface, address: str, *, prefix: int, neighbours: Iterable[Neighbour]
) -> None:
    """Address a node's interface, bring it up, and add permanent entries for its neighbours.

    Resolving neighbours delays the first packet, and the kernel's table of resolved neighbours
    is full at 1,024, counted over all namespaces; permanent entries are not counted.
    """
    interface.ip.addr("add", index=interface.index, address=address, prefixlen=prefix)
    bring_up(interface)
    for neighbour in neighbours:
        # A neighbour that calls a restarted node is answered at once, which adds an entry.
        interface.ip.neigh(
            "replace",
            ifindex=interface.index,
            dst=neighbour.address,
            lladdr=neighbour.mac,
            state=NEIGHBOUR_PERMANENT,
        )


def fix_congestion_control(interface: Interface, address: str, *, prefix: int) -> str:
    """Make every connection through ``interface``, which has this address, use CONGESTION_CONTROL.

    It determines how much of a model is retransmitted: through a queue of 100 ms at 10 mbit, BBR
    retransmitted 7 to 11 % of an 847 KB pull and cubic 0.3 %. A namespace may not choose its
    default freely (``tcp_allowed_congestion_control`` restricts it), but its routes may.

    Returns:
        CONGESTION_CONTROL, or an empty string if the kernel lacks it: then the host's default
        applies.

    Raises:
        NetlinkError: the kernel refused for another reason.
    """
    from pyroute2.netlink.exceptions import NetlinkError

    subnet = IPv4Interface(f"{address}/{prefix}")
    try:
        interface.ip.route(  # as the kernel created it, with the algorithm added
            "replace",
            dst=str(subnet.network),
            oif=interface.index,
            prefsrc=address,
            proto=PROTOCOL_KERNEL,
            scope=SCOPE_LINK,
            metrics={"cc_algo": CONGESTION_CONTROL},
        )
    except NetlinkError as error:
        if error.code == UNKNOWN_ALGORITHM:
            return ""
        raise
    return CONGESTION_CONTROL


PROTOCOL_INFORMATION = 12 | 0x8000
"""IFLA_PROTINFO, with NLA_F_NESTED."""

PORT_STATE = 1
"""IFLA_BRPORT_STATE, inside it."""

DISABLED, FORWARDING = 0, 3
"""The kernel keeps a disabled port disabled as long as its carrier is up."""


def set_port_forwarding(port: Interface, *, forwarding: bool) -> None:
    """Make a port forward frames, or drop all of them, in both directions.

    Raises:
        NetlinkError: the kernel refused.
    """
    from pyroute2.netlink import NLM_F_ACK, NLM_F_REQUEST, nlmsg
    from pyroute2.netlink.rtnl import RTM_SETLINK
    from pyroute2.netlink.rtnl.ifinfmsg import ifinfmsg

    class State(nlmsg):  # type: ignore[misc]
        """Encodes the bridge's attributes as the kernel does, as bytes."""

        fields = ifinfmsg.fields
        nla_map = ((PROTOCOL_INFORMATION, "PROTOCOL_INFORMATION", "cdata"),)

    message = State()
    message["family"] = socket.AF_BRIDGE
    message["index"] = port.index
    state = struct.pack("=HHB3x", 5, PORT_STATE, FORWARDING if forwarding else DISABLED)
    message["attrs"] = [("PROTOCOL_INFORMATION", state)]
    message["header"]["type"] = RTM_SETLINK
    message["header"]["flags"] = NLM_F_REQUEST | NLM_F_ACK
    tuple(port.ip.nlm_request_batch([message]))
