"""The switch: a bridge in the calling process's network namespace, and one veth into every node.

The node's end, ``eth0``, shapes what the node sends; the port's end shapes what it receives.
Everything ends with the namespaces: nothing needs to be removed.

Nothing is discovered: every address is in the plan. Nodes have permanent entries for their
neighbours, the bridge has a static entry for every address and learns and floods nothing,
and no interface announces an IPv6 address. So an idle link carries no packet at all.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cache, partial
from typing import Any

from testbed.errors import HostError, NodeError
from testbed.host.namespaces import LOOPBACK_INDEX
from testbed.network import tc
from testbed.network.interfaces import (
    Interface,
    Neighbour,
    Sockets,
    bring_up,
    fix_congestion_control,
    give_address,
    mtu_of,
    set_port_forwarding,
    sockets,
)
from testbed.network.netem import check_netem, kernel_has_netem, without_netem
from testbed.network.offloads import Offloads, needs_packets, read_offloads, set_offloads
from testbed.network.qdiscs import Netem, Qdisc, describe, differences, qdiscs_of
from testbed.values.topology import DEFAULT_MTU, LinkSpec, NetworkSpec, NodeSpec, Offload

MAX_PORTS = 1023
"""Ports of a Linux bridge: one for the PS, the others for workers."""

BRIDGE = "br0"
INTERFACE = "eth0"

FORWARD_STATIC = 0x40
"""State of a bridge entry that never ages; 0x80 would mean an address of the bridge itself."""

NEEDS = "Links need a kernel with bridge and veth (CONFIG_BRIDGE, CONFIG_VETH)."


@dataclass(frozen=True)
class AttachedLink:
    """A link as requested and as the kernel has it.

    Attributes:
        node: the node's name, and the name of its port.
        up: requested at the node's end, ``eth0``; None if nothing is shaped.
        down: requested at the switch's end, the port.
        congestion_control: of the node's connections; empty for the host's default.
        mtu: requested at both ends; found at the node's and at the switch's.
        left_out: what ``missing: warn`` left out, such as ``class slow: up.delay 20ms``.
    """

    node: str
    up: Qdisc | None
    up_found: Qdisc | None
    down: Qdisc | None
    down_found: Qdisc | None
    node_offloads: Offloads
    port_offloads: Offloads
    congestion_control: str
    left_out: tuple[str, ...]
    mtu: int
    mtus_found: tuple[int, int]

    def as_dict(self) -> dict[str, object]:
        """Return the same as plain data, the qdiscs as text."""
        qdiscs = ("up", "up_found", "down", "down_found")
        return {
            **asdict(self),
            **{name: describe(getattr(self, name)) for name in qdiscs},
            "left_out": list(self.left_out),
            "unseeded": self.unseeded(),
            "differences": self.differences(),
        }

    def unseeded(self) -> list[str]:
        """Return the directions with irreproducible draws: no seed in the kernel (before 6.6)."""
        directions = {"up": self.up_found, "down": self.down_found}
        return [
            direction
            for direction, found in directions.items()
            if isinstance(found, Netem) and (found.jitter or found.loss) and found.seed is None
        ]

    def differences(self) -> list[str]:
        """Return the differences between kernel and request, with their direction."""
        directions = {"up": (self.up, self.up_found), "down": (self.down, self.down_found)}
        return [
            f"{direction}: {difference}"
            for direction, pair in directions.items()
            for difference in differences(*pair)
        ] + [
            f"{direction}: mtu: configured {self.mtu}, the kernel has {found}"
            for direction, found in zip(directions, self.mtus_found, strict=True)
            if found != self.mtu
        ]


class Switch:
    """One per host. Runs in the thread that built it; leaves no thread or socket behind.

    Args:
        bridge: index of the bridge.
        has_netem: returns whether the kernel has netem; called once, when a link first needs it.
    """

    def __init__(self, bridge: int, *, has_netem: Callable[[], bool]) -> None:
        self._bridge = bridge
        self._has_netem = cache(has_netem)
        self._congestion_control = ""

    @classmethod
    def build(cls, *, has_netem: Callable[[], bool] = kernel_has_netem) -> Switch:
        """Create the bridge in the current network namespace, and bring ``lo`` and the bridge up.

        Raises:
            HostError: the kernel refused.
        """
        from pyroute2.netlink.exceptions import NetlinkError

        try:
            with sockets() as switch:
                switch.ip.link("set", index=LOOPBACK_INDEX, state="up")
                switch.ip.link(
                    "add",
                    ifname=BRIDGE,
                    kind="bridge",
                    br_stp_state=0,
                    br_forward_delay=0,
                    br_mcast_snooping=0,
                )
                bridge = switch.interface(BRIDGE)
                bring_up(bridge)
        except NetlinkError as error:
            raise HostError(f"cannot create the switch: {error}.", hint=NEEDS) from error
        return cls(bridge.index, has_netem=has_netem)

    def attach(
        self,
        node: NodeSpec,
        *,
        pid: int,
        network: NetworkSpec,
        neighbours: Sequence[Neighbour] = (),
    ) -> None:
        """Create a node's ``eth0``: addressed, connected, shaped, and compared with the request.

        Args:
            node: a node with a link.
            pid: a process in the node's network namespace, as this process sees it.
            network: prefix, what to do without netem, offloads.
            neighbours: the nodes that the node talks to.

        Raises:
            HostError: the kernel lacks netem and ``missing`` is ``fail``, or the bridge is full.
            NodeError: the link could not be created, or differs from the request; names the node.
        """
        link, _ = self._fit(node, network)
        with _describing_errors(node.name, "created"), sockets() as switch:
            port = self._add_port(switch, node.name, link, pid=pid)
            with sockets(pid) as inside:
                eth0 = inside.interface(INTERFACE)
                give_address(eth0, link.address, prefix=network.prefix, neighbours=neighbours)
                self._congestion_control = fix_congestion_control(
                    eth0, link.address, prefix=network.prefix
                )
                _shape(node.name, link, network.offload, eth0=eth0, port=port)

    def reshape(self, node: NodeSpec, *, pid: int, network: NetworkSpec) -> None:
        """Change an attached link to that of ``node``; queued packets are kept where possible.

        Addresses do not change; pid and network are as for ``attach``.

        Raises:
            HostError: the kernel lacks netem.
            NodeError: the link could not be changed, or needs the offloads off and has them on.
        """
        link, _ = self._fit(node, network)
        if needs_packets(link) and network.offload == "on":
            raise NodeError(
                f"{node.name}: this change requires segmentation offloads off, but they are on.",
                hint="Start the run with `--set network.offload=off`.",
            )
        with _describing_errors(node.name, "changed"), sockets() as switch, sockets(pid) as inside:
            port, eth0 = switch.interface(node.name), inside.interface(INTERFACE)
            _shape(node.name, link, network.offload, eth0=eth0, port=port)

    def set_forwarding(self, name: str, *, forwarding: bool) -> None:
        """Make a node's port forward frames, or drop all in both directions, like a cut cable.

        Neither end loses its carrier, so connections survive and retransmit what was lost.

        Raises:
            NodeError: there is no such port, or the kernel refused.
        """
        with _describing_errors(name, "reconnected" if forwarding else "cut"), sockets() as switch:
            set_port_forwarding(switch.interface(name), forwarding=forwarding)

    def inspect(self, node: NodeSpec, *, pid: int, network: NetworkSpec) -> AttachedLink:
        """Return the kernel's current state of an attached link; change and compare nothing.

        Raises:
            NodeError: the link does not exist any more; names the node.
        """
        link, left_out = self._fit(node, network)
        with _describing_errors(node.name, "read"), sockets() as switch, sockets(pid) as inside:
            port, eth0 = switch.interface(node.name), inside.interface(INTERFACE)
            return self._read(node.name, link, left_out, eth0=eth0, port=port)

    def _fit(self, node: NodeSpec, network: NetworkSpec) -> tuple[LinkSpec, tuple[str, ...]]:
        """Return the link that this kernel can provide, and what had to be left out."""
        if node.link is None:
            raise NodeError(f"{node.name}: cannot attach a link: the plan has none for this node")
        if not (node.link.up.needs_netem or node.link.down.needs_netem):
            return node.link, ()
        left_out = check_netem([node], missing=network.missing, present=self._has_netem())
        return (without_netem(node.link) if left_out else node.link), left_out

    def _add_port(self, switch: Sockets, name: str, link: LinkSpec, *, pid: int) -> Interface:
        """Create a veth with one end in the node's namespace; return its port of the bridge."""
        from pyroute2.netlink.exceptions import NetlinkError

        both: dict[str, Any] = {} if link.mtu is None else {"mtu": link.mtu}
        peer = {"ifname": INTERFACE, "net_ns_pid": pid, "address": link.mac, **both}
        add = partial(
            switch.ip.link, "add", ifname=name, kind="veth", peer=peer, master=self._bridge, **both
        )
        try:
            add()
        except NetlinkError as error:
            if error.code != errno.EEXIST:
                raise
            # A node of that name has ended, and the kernel is still sending its queued packets.
            switch.ip.link("del", index=switch.interface(name).index)
            add()
        port = switch.interface(name)
        switch.ip.brport(
            "set", index=port.index, learning=0, unicast_flood=0, mcast_flood=0, bcast_flood=0
        )
        switch.ip.fdb("add", ifindex=port.index, lladdr=link.mac, state=FORWARD_STATIC)
        bring_up(port)
        return port

    def _read(
        self,
        name: str,
        link: LinkSpec,
        left_out: tuple[str, ...],
        *,
        eth0: Interface,
        port: Interface,
    ) -> AttachedLink:
        up, down = qdiscs_of(link)
        return AttachedLink(
            node=name,
            up=up,
            up_found=tc.read_back(eth0.ip, eth0.index),
            down=down,
            down_found=tc.read_back(port.ip, port.index),
            node_offloads=read_offloads(eth0.control, eth0.name),
            port_offloads=read_offloads(port.control, port.name),
            congestion_control=self._congestion_control,
            left_out=left_out,
            mtu=link.mtu or DEFAULT_MTU,
            mtus_found=(mtu_of(eth0), mtu_of(port)),
        )


def _shape(
    name: str, link: LinkSpec, offload: Offload, *, eth0: Interface, port: Interface
) -> None:
    """Direction both directions at their ends, each read back and compared."""
    up, down = qdiscs_of(link)
    if offload == "auto" and needs_packets(link):
        offload = "off"
    for direction, end, qdisc in (("up", eth0, up), ("down", port, down)):
        tc.shape(end.ip, end.index, qdisc, where=f"{name}: {direction}")
        set_offloads(end.control, end.name, offload=offload, where=f"{name}: {direction}")


@contextmanager
def _describing_errors(name: str, done: str) -> Iterator[None]:
    """Inside, kernel errors become errors that name the operation and the node."""
    from pyroute2.netlink.exceptions import NetlinkError

    refusal = f"{name}: its link cannot be {done}"
    try:
        yield
    except NetlinkError as error:
        if error.code == errno.EXFULL:
            full = f"{name}: the switch is full: a bridge has {MAX_PORTS} ports."
            raise HostError(full) from error
        if error.code == errno.EOPNOTSUPP:
            raise HostError(f"{refusal}: {error}.", hint=NEEDS) from error
        raise NodeError(f"{refusal}: {error}") from error
    except OSError as error:
        raise NodeError(f"{refusal}: {error}") from error
    except ValueError as error:
        raise NodeError(f"{name}: its link cannot be shaped: {error}") from error
