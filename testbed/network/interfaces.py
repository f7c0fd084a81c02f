"""The two ends of a link: interfaces, accessed through sockets opened in their namespaces."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from errno import EINVAL, ENODEV
from ipaddress import IPv4Interface
from pathlib import Path

from testbed.host.namespaces import inside
from testbed.host.syscalls import (
    bring_interface_up,
    ethtool,
    interface_index,
    interface_mtu,
)
from testbed.network.rtnetlink import (
    CREATE_NEW,
    CREATE_OR_REPLACE,
    Kind,
    Request,
    Rtnetlink,
    request,
)

NEIGHBOUR_PERMANENT = 0x80
FORWARD_STATIC = 0x40
"""State of a bridge entry that never ages; 0x80 would mean an address of the bridge itself."""

GET_CARRIER = 0x0A
"""ETHTOOL_GLINK."""

ADDRESS_NONE = 1
NO_IPV6_ADDRESS = (("AF_INET6", (("IFLA_INET6_ADDR_GEN_MODE", ADDRESS_NONE),)),)

CONGESTION_CONTROL = "cubic"
"""Linux's default, which devices use unless configured otherwise."""

PROTOCOL_KERNEL, SCOPE_LINK, TABLE_MAIN, UNICAST = 2, 253, 254, 1
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
        rtnetlink: a socket for rtnetlink.
        control: a socket for ioctls.
    """

    rtnetlink: Rtnetlink
    control: socket.socket

    def interface(self, name: str) -> Interface:
        """Return the interface with this name.

        Raises:
            OSError: there is no such interface.
        """
        return Interface(self.rtnetlink, self.control, name, interface_index(self.control, name))


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
    with ExitStack() as opened:
        with ExitStack() as there:
            if pid is not None:
                there.enter_context(inside(pid))
            control = opened.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
            rtnetlink = opened.enter_context(Rtnetlink())
        yield Sockets(rtnetlink, control)


def mtu_of(interface: Interface) -> int:
    """Return an interface's MTU, as the kernel has it."""
    return interface_mtu(interface.control, interface.name)


def bring_up(interface: Interface) -> None:
    """Bring it up without an IPv6 address of its own, which would be announced on the link."""
    if Path("/proc/net/if_inet6").exists():
        specific = ("IFLA_AF_SPEC", NO_IPV6_ADDRESS)
        interface.rtnetlink.ask(request(Kind.NEW_LINK, 0, specific, index=interface.index))
    bring_interface_up(interface.control, interface.name)


def await_carrier(*ends: Interface) -> None:
    """Let the kernel finish what it does after both ends of a link are up.

    On a busy host that is much later, and until then an end drops packets. To ask the kernel for
    the carrier, as this does, makes it do that at once.
    """
    for end in ends:
        ethtool(end.control, end.name, GET_CARRIER)


def remove(where: Sockets, name: str) -> None:
    """Remove an interface, unless it has just gone by itself."""
    from pyroute2.netlink.exceptions import NetlinkError

    try:
        index = where.interface(name).index
        where.rtnetlink.ask(request(Kind.DELETE_LINK, 0, index=index))
    except (OSError, NetlinkError) as error:
        if ENODEV not in (getattr(error, "errno", 0), getattr(error, "code", 0)):
            raise


def give_address(
    interface: Interface, address: str, *, prefix: int, neighbours: Iterable[Neighbour]
) -> None:
    """Address a node's interface, bring it up, and add permanent entries for its neighbours.

    Resolving neighbours delays the first packet, and the kernel's table of resolved neighbours
    is full at 1,024, counted over all namespaces; permanent entries are not counted.
    """
    interface.rtnetlink.ask(
        request(
            Kind.NEW_ADDRESS,
            CREATE_NEW,
            ("IFA_ADDRESS", address),
            ("IFA_LOCAL", address),
            family=socket.AF_INET,
            index=interface.index,
            prefixlen=prefix,
        )
    )
    bring_up(interface)
    interface.rtnetlink.ask(*(_permanent(interface, neighbour) for neighbour in neighbours))


def _permanent(interface: Interface, neighbour: Neighbour) -> Request:
    """Return the request for a permanent entry.

    A neighbour that calls a restarted node is answered at once, which adds an entry.
    """
    return request(
        Kind.NEW_NEIGHBOUR,
        CREATE_OR_REPLACE,
        ("NDA_DST", neighbour.address),
        ("NDA_LLADDR", neighbour.mac),
        family=socket.AF_INET,
        ifindex=interface.index,
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

    network = IPv4Interface(f"{address}/{prefix}").network
    route = request(  # as the kernel created it, with the algorithm added
        Kind.NEW_ROUTE,
        CREATE_OR_REPLACE,
        ("RTA_DST", str(network.network_address)),
        ("RTA_OIF", interface.index),
        ("RTA_PREFSRC", address),
        ("RTA_METRICS", (("RTAX_CC_ALGO", CONGESTION_CONTROL),)),
        family=socket.AF_INET,
        dst_len=prefix,
        table=TABLE_MAIN,
        proto=PROTOCOL_KERNEL,
        scope=SCOPE_LINK,
        type=UNICAST,
    )
    try:
        interface.rtnetlink.ask(route)
    except NetlinkError as error:
        if error.code == UNKNOWN_ALGORITHM:
            return ""
        raise
    return CONGESTION_CONTROL


NESTED = 0x8000

DISABLED, FORWARDING = 0, 3
"""The kernel keeps a disabled port disabled as long as its carrier is up."""


def set_port(port: Interface, **options: int) -> None:
    """Set options of a bridge's port, such as ``learning``, named as pyroute2 names them.

    Raises:
        NetlinkError: the kernel refused.
    """
    attributes = ((f"IFLA_BRPORT_{name.upper()}", value) for name, value in options.items())
    information = ("IFLA_PROTINFO", tuple(attributes), NESTED)
    family, index = socket.AF_BRIDGE, port.index
    port.rtnetlink.ask(request(Kind.SET_LINK, 0, information, family=family, index=index))


def flood_nothing(port: Interface) -> None:
    """Make a port of a bridge send only what the bridge's entries lead there."""
    set_port(port, learning=0, unicast_flood=0, mcast_flood=0, bcast_flood=0)


def set_port_forwarding(port: Interface, *, forwarding: bool) -> None:
    """Make a port forward frames, or drop all of them, in both directions.

    Raises:
        NetlinkError: the kernel refused.
    """
    set_port(port, state=FORWARDING if forwarding else DISABLED)


def forward(port: Interface, mac: str) -> Request:
    """Return the request that leads a MAC address's frames to a port of a bridge. Idempotent."""
    return request(
        Kind.NEW_NEIGHBOUR,
        CREATE_OR_REPLACE,
        ("NDA_LLADDR", mac),
        family=socket.AF_BRIDGE,
        ifindex=port.index,
        state=FORWARD_STATIC,
    )
