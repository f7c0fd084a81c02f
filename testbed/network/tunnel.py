"""The VXLAN device that joins the switches of a run's hosts. Nothing is learned or flooded.

The device is created through a socket in the host's network namespace and put into the switch's:
its UDP socket stays in the host's, which is all that there is of a run, and both end with the
switch's namespace. Every address behind it is entered: MAC to host, and MAC to this port.
"""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass

from testbed.errors import HostError
from testbed.network.interfaces import Interface, Sockets, bring_up, sockets

TUNNEL = "vx.0"
"""With a dot, which no node's name has."""

PORT = 4789
VXLAN_HEADER_BYTES = 50
"""Outer Ethernet, IPv4 and UDP headers, and VXLAN's own."""

HOST_PROCESS = 1
"""In the agent's pid namespace, which is the host's; its network namespace is the host's too."""

FORWARD_STATIC = 0x40
"""State of a bridge entry that never ages; 0x80 would mean an address of the bridge itself."""

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
            outside.ip.link(
                "add",
                ifname=TUNNEL,
                kind="vxlan",
                vxlan_id=tunnel.vni,
                vxlan_local=tunnel.address,
                vxlan_port=PORT,
                vxlan_learning=0,
                mtu=tunnel.mtu,
                net_ns_pid=os.getpid(),
            )
        except NetlinkError as error:
            raise explain(error.code, tunnel) from error
    port = switch.interface(TUNNEL)
    switch.ip.link("set", index=port.index, master=bridge)
    switch.ip.brport(
        "set", index=port.index, learning=0, unicast_flood=0, mcast_flood=0, bcast_flood=0
    )
    try:
        bring_up(port)  # opens the UDP socket
    except OSError as error:
        raise explain(error.errno or 0, tunnel) from error
    return port


def lead(port: Interface, mac: str, host: str) -> None:
    """Send frames for a MAC address to the host with this address. Idempotent."""
    port.ip.fdb("replace", ifindex=port.index, lladdr=mac, state=FORWARD_STATIC)
    own = {"flags": OWN_ENTRY, "state": REACHABLE_PERMANENT}
    port.ip.fdb("replace", ifindex=port.index, lladdr=mac, dst=host, **own)


def _check_underlay(host: Sockets, tunnel: Tunnel) -> None:
    """Reject an address that no interface has, or whose interface has too small an MTU."""
    least = tunnel.mtu + VXLAN_HEADER_BYTES
    found = [one for one in host.ip.get_addr() if one.get_attr("IFA_ADDRESS") == tunnel.address]
    if not found:
        raise HostError(
            f"no interface of this host has the address {tunnel.address}.",
            hint="Set the label org.edge-testbed.address of its Swarm node to one that it has.",
        )
    (link,) = host.ip.link("get", index=found[0]["index"])
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
