"""The VXLAN device that joins the switches of a run's hosts. Nothing is learned or flooded.

The device is created through a socket in the host's network namespace and put into the switch's:
its UDP socket stays in the host's, which is all that there is of a run, and both end with the
switch's namespace. Every address behind it is entered: MAC to host, and MAC to this port.
"""

from __future__ import annotations

import errno
import os
import socket
from dataclasses import dataclass

from testbed.errors import HostError
from testbed.network.interfaces import (
    Interface,
    Sockets,
    bring_up,
    flood_nothing,
    forward,
    sockets,
)
from testbed.network.rtnetlink import CREATE_OR_REPLACE, Flag, Kind, Request, new_link, request

TUNNEL = "vx.0"
"""With a dot, which no node's name has."""

PORT = 4789
VXLAN_HEADER_BYTES = 50
"""Outer Ethernet, IPv4 and UDP headers, and VXLAN's own."""

HOST_PROCESS = 1
"""In the agent's pid namespace, which is the host's; its network namespace is the host's too."""

REACHABLE_PERMANENT = 0x80
"""State of an entry of a VXLAN device that never ages."""

OWN_ENTRY = 0x02
"""NTF_SELF: an entry of the device, not of the bridge that it is a port of."""


@dataclass(frozen=True)
class Tunnel:
    """One host's end.

    Attributes:
        vni: identifies the run on all hosts, 24 bits.
        address: this host's own, at which the others reach it.
        mtu: bytes of the largest IP packet of a node.
    """

    vni: int
    address: str
    mtu: int


def add_tunnel(
    switch: Sockets, tunnel: Tunnel, *, bridge: int, host: int = HOST_PROCESS
) -> Interface:
    """Create the device, as a port of a bridge in the current network namespace.

    Args:
        switch: sockets in this namespace.
        tunnel: this host's end.
        bridge: index of the bridge.
        host: a process in the host's network namespace.

    Raises:
        HostError: the host has no interface with that address, or one with a smaller MTU; another
            run has that VNI, or a program the UDP port; the kernel has no VXLAN.
    """
    from pyroute2.netlink.exceptions import NetlinkError

    with sockets(host) as outside:
        _check_underlay(outside, tunnel)
        try:
            outside.rtnetlink.ask(_device(tunnel))
        except NetlinkError as error:
            raise explain(error.code, tunnel) from error
    port = switch.interface(TUNNEL)
    switch.rtnetlink.ask(request(Kind.NEW_LINK, 0, ("IFLA_MASTER", bridge), index=port.index))
    flood_nothing(port)
    try:
        bring_up(port)  # opens the UDP socket
    except OSError as error:
        raise explain(error.errno or 0, tunnel) from error
    return port


def _device(tunnel: Tunnel) -> Request:
    """Return the request that creates the device in this process's network namespace."""
    return new_link(
        TUNNEL,
        "vxlan",
        ("IFLA_VXLAN_ID", tunnel.vni),
        ("IFLA_VXLAN_LOCAL", tunnel.address),
        ("IFLA_VXLAN_PORT", PORT),
        ("IFLA_VXLAN_LEARNING", 0),
        attributes=(("IFLA_MTU", tunnel.mtu), ("IFLA_NET_NS_PID", os.getpid())),
    )


def lead(port: Interface, mac: str, host: str) -> None:
    """Send frames for a MAC address to the host with this address. Idempotent."""
    own = request(
        Kind.NEW_NEIGHBOUR,
        CREATE_OR_REPLACE,
        ("NDA_LLADDR", mac),
        ("NDA_DST", host),
        family=socket.AF_BRIDGE,
        ifindex=port.index,
        state=REACHABLE_PERMANENT,
        flags=OWN_ENTRY,
    )
    port.rtnetlink.ask(forward(port, mac), own)


def _check_underlay(host: Sockets, tunnel: Tunnel) -> None:
    """Reject an address that no interface has, or whose interface has too small an MTU."""
    least = tunnel.mtu + VXLAN_HEADER_BYTES
    addresses = host.rtnetlink.ask(request(Kind.GET_ADDRESS, Flag.DUMP))
    # IFA_ADDRESS is that of the other end if the interface is a point-to-point link.
    found = [one for one in addresses if one.get_attr("IFA_LOCAL") == tunnel.address]
    if not found:
        raise HostError(
            f"no interface of this host has the address {tunnel.address}.",
            hint="Set the label org.edge-testbed.address of its Swarm node to one that it has.",
        )
    (link,) = host.rtnetlink.ask(request(Kind.GET_LINK, 0, index=found[0]["index"]))
    name, mtu = str(link.get_attr("IFLA_IFNAME")), int(link.get_attr("IFLA_MTU"))
    if mtu < least:
        raise HostError(
            f"{name} with {tunnel.address} has an MTU of {mtu}, expected at least {least}.",
            hint=f"ip link set {name} mtu {least}, or `mtu: {mtu - VXLAN_HEADER_BYTES}` at links.",
        )


def explain(code: int, tunnel: Tunnel) -> HostError:
    """Return the error for the kernel's refusal of the device, an errno. Pure."""
    if code == errno.EEXIST:
        return HostError(
            f"VXLAN {tunnel.vni} exists on this host: another run or network uses it.",
            hint="Start the run again under another --name.",
        )
    if code == errno.EADDRINUSE:
        return HostError(
            f"UDP port {PORT} of this host is in use, which VXLAN needs.",
            hint=f"End what has it: sudo ss -ulpn sport = :{PORT}",
        )
    hint = "It needs a kernel with VXLAN (CONFIG_VXLAN): sudo modprobe vxlan"
    return HostError(f"cannot create the VXLAN device: {os.strerror(code)}.", hint=hint)
