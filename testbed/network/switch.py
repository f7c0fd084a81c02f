"""The switches: bridges in the calling process's network namespace, and one veth into every node.

The node's end, ``eth0``, shapes what the node sends; the port's end shapes what it receives.
A run has one bridge, the core, unless its plan has trunks: each is a veth between two bridges,
shaped at both ends like a node's link, so all nodes behind it share its rate.
Everything ends with the namespaces: nothing needs to be removed.

Nothing is discovered: every address is in the plan. Nodes have permanent entries for their
neighbours, every bridge has a static entry for every address and learns and floods nothing,
and no interface announces an IPv6 address. So an idle link carries no packet at all.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache

from testbed.errors import HostError, NodeError
from testbed.host.syscalls import LOOPBACK, bring_interface_up
from testbed.network import tc
from testbed.network.attached import AttachedLink
from testbed.network.frames import TRUNK_GROUP
from testbed.network.interfaces import (
    Interface,
    Neighbour,
    Sockets,
    await_carrier,
    bring_up,
    fix_congestion_control,
    flood_nothing,
    forward,
    give_address,
    mtu_of,
    remove,
    set_port_forwarding,
    sockets,
)
from testbed.network.netem import (
    check_netem,
    kernel_has_netem,
    owned_links,
    without_netem,
)
from testbed.network.offloads import needs_packets, read_offloads, set_offloads
from testbed.network.paths import next_trunks
from testbed.network.qdiscs import Qdisc, qdiscs_of
from testbed.network.rtnetlink import Attribute, Kind, Request, new_link, request
from testbed.network.tunnel import (
    HOST_PROCESS,
    TUNNEL,
    Tunnel,
    add_tunnel,
    lead,
)
from testbed.values.topology import (
    CORE,
    DEFAULT_MTU,
    INTERFACE,
    LinkSpec,
    NetworkSpec,
    NodeSpec,
    Offload,
    Trunk,
)

MAX_PORTS = 1023
"""Ports of a Linux bridge: one for the PS, the others for workers."""

BRIDGE = "br0"
"""The core; the others are ``br.1``, ``br.2``, ..., with a dot, which no node's name has."""

NEEDS = "Links need a kernel with bridge and veth (CONFIG_BRIDGE, CONFIG_VETH)."


class Switch:
    """All of a host. Runs in the thread that built it; leaves no thread or socket behind.

    Args:
        bridge: index of the core's bridge.
        has_netem: returns whether the kernel has netem; called once, when a link first needs it.
    """

    def __init__(self, bridge: int, *, has_netem: Callable[[], bool]) -> None:
        self._bridges = {CORE: bridge}
        self._network = NetworkSpec()
        self._trunks: dict[str, Trunk] = {}  # as they are now, in the order of their numbers
        self._has_netem = cache(has_netem)
        self._congestion_control = ""

    @classmethod
    def build(
        cls,
        *,
        has_netem: Callable[[], bool] = kernel_has_netem,
        tunnel: Tunnel | None = None,
        host: int = HOST_PROCESS,
    ) -> Switch:
        """Create the bridge in the current network namespace, and bring ``lo`` and the bridge up.

        Args:
            has_netem: as for the class.
            tunnel: this host's end of what joins its switch to those of the run's other hosts.
            host: a process in the host's network namespace, where the tunnel has its UDP socket.

        Raises:
            HostError: the kernel refused.
        """
        from pyroute2.netlink.exceptions import NetlinkError

        try:
            with sockets() as switch:
                bring_interface_up(switch.control, LOOPBACK)
                bridge = _add_bridge(switch, BRIDGE)
                if tunnel is not None:
                    add_tunnel(switch, tunnel, bridge=bridge, host=host)
        except NetlinkError as error:
            raise HostError(f"cannot create the switch: {error}.", hint=NEEDS) from error
        return cls(bridge, has_netem=has_netem)

    def attach(
        self,
        node: NodeSpec,
        *,
        pid: int,
        network: NetworkSpec,
        neighbours: Sequence[Neighbour] = (),
    ) -> AttachedLink:
        """Create a node's ``eth0``: addressed, connected, shaped, and compared with the request.

        Args:
            node: a node with a link.
            pid: a process in the node's network namespace, as this process sees it.
            network: prefix, what to do without netem, offloads, trunks: the same for all nodes.
            neighbours: the nodes that the node talks to.

        Returns:
            The link as the kernel has it now.

        Raises:
            HostError: the kernel lacks netem and ``missing`` is ``fail``, or the bridge is full.
            NodeError: the link could not be created, or differs from the request; names the node.
        """
        self._build_trunks(network)
        link, left_out = self._fit(*_link_of(node), network)
        with _describing_errors(node.name, "created"), sockets() as switch:
            port = self._add_port(switch, node.name, link, pid=pid)
            for neighbour in neighbours:
                if neighbour.host:
                    lead(switch.interface(TUNNEL), neighbour.mac, neighbour.host)
            with sockets(pid) as inside:
                eth0 = inside.interface(INTERFACE)
                give_address(eth0, link.address, prefix=network.prefix, neighbours=neighbours)
                await_carrier(port, eth0)
                control = fix_congestion_control(eth0, link.address, prefix=network.prefix)
                self._congestion_control = control
                found = _shape(node.name, link, network.offload, eth0=eth0, port=port)
                return self._read(node.name, link, left_out, (eth0, port), found, control=control)

    def reshape(self, node: NodeSpec, *, pid: int, network: NetworkSpec) -> None:
        """Change an attached link to that of ``node``; queued packets are kept where possible.

        Addresses do not change; pid and network are as for ``attach``.

        Raises:
            HostError: the kernel lacks netem.
            NodeError: the link could not be changed, or needs the offloads off and has them on.
        """
        link, _ = self._fit(*_link_of(node), network)
        _check_offload(node.name, link, network)
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
        link, left_out = self._fit(*_link_of(node), network)
        with _describing_errors(node.name, "read"), sockets() as switch, sockets(pid) as inside:
            port, eth0 = switch.interface(node.name), inside.interface(INTERFACE)
            return self._read(
                node.name, link, left_out, (eth0, port), control=self._congestion_control
            )

    def trunk_links(self) -> dict[str, LinkSpec]:
        """Return the links between switches as they are now, by name."""
        return {name: trunk.link for name, trunk in self._trunks.items()}

    def reshape_trunk(self, name: str, link: LinkSpec) -> None:
        """Change a link between switches; queued packets are kept where possible.

        Raises:
            HostError, NodeError: as for ``reshape``.
        """
        fit, _ = self._fit(f"link {name}", link, self._network)
        _check_offload(name, fit, self._network)
        number = list(self._trunks).index(name)
        with _describing_errors(name, "changed"), sockets() as switch:
            one, other = switch.interface(_end(number, 0)), switch.interface(_end(number, 1))
            _shape(name, fit, self._network.offload, eth0=one, port=other)
        self._trunks[name] = replace(self._trunks[name], link=link)

    def inspect_trunks(self) -> list[AttachedLink]:
        """Return the kernel's current state of the links between switches.

        Raises:
            NodeError: one does not exist any more.
        """
        found = []
        for number, (name, trunk) in enumerate(self._trunks.items()):
            link, left_out = self._fit(f"link {name}", trunk.link, self._network)
            with _describing_errors(name, "read"), sockets() as switch:
                ends = switch.interface(_end(number, 0)), switch.interface(_end(number, 1))
                found.append(self._read(name, link, left_out, ends))
        return found

    def _build_trunks(self, network: NetworkSpec) -> None:
        """Create the links between switches, and the switches that they lead to, unless they exist.

        Raises:
            HostError, NodeError: as for ``attach``; names the trunk.
        """
        if self._trunks:
            return
        for number, trunk in enumerate(network.trunks):
            link, _ = self._fit(f"link {trunk.name}", trunk.link, network)
            with _describing_errors(trunk.name, "created"), sockets() as switch:
                for name in trunk.ends:
                    if name not in self._bridges:
                        bridge = _add_bridge(switch, f"br.{len(self._bridges)}")
                        self._bridges[name] = bridge
                names = _end(number, 0), _end(number, 1)
                mtu = ("IFLA_MTU", link.mtu or DEFAULT_MTU)
                peer = [("IFLA_IFNAME", names[1]), mtu]
                switch.rtnetlink.ask(_new_veth(names[0], mtu, peer=peer))
                ends = [switch.interface(name) for name in names]
                for end, name in zip(ends, trunk.ends, strict=True):
                    for one in (("IFLA_MASTER", self._bridges[name]), ("IFLA_GROUP", TRUNK_GROUP)):
                        switch.rtnetlink.ask(request(Kind.NEW_LINK, 0, one, index=end.index))
                    flood_nothing(end)
                    bring_up(end)
                _shape(trunk.name, link, network.offload, eth0=ends[0], port=ends[1])
        self._network = network
        self._trunks = {trunk.name: trunk for trunk in network.trunks}

    def _fit(
        self, owner: str, link: LinkSpec, network: NetworkSpec
    ) -> tuple[LinkSpec, tuple[str, ...]]:
        """Return the link that this kernel can provide, and what had to be left out."""
        if not (link.up.needs_netem or link.down.needs_netem):
            return link, ()
        wanted = [(owner, link)]
        left_out = check_netem(wanted, missing=network.missing, present=self._has_netem())
        return (without_netem(link) if left_out else link), left_out

    def _add_port(self, switch: Sockets, name: str, link: LinkSpec, *, pid: int) -> Interface:
        """Create a veth with one end in the node's namespace; return its port of its switch."""
        from pyroute2.netlink.exceptions import NetlinkError

        both = [] if link.mtu is None else [("IFLA_MTU", link.mtu)]
        inside = [("IFLA_IFNAME", INTERFACE), ("IFLA_NET_NS_PID", pid), ("IFLA_ADDRESS", link.mac)]
        master = ("IFLA_MASTER", self._bridges[link.switch])
        try:
            switch.rtnetlink.ask(_new_veth(name, master, *both, peer=inside + both))
        except NetlinkError as error:
            if error.code != errno.EEXIST:
                raise
            # A node of that name has ended, and the kernel is still sending its queued packets.
            remove(switch, name)
            switch.rtnetlink.ask(_new_veth(name, master, *both, peer=inside + both))
        port = switch.interface(name)
        flood_nothing(port)
        leading = {link.switch: port}
        trunks = self._network.trunks
        for other, number in next_trunks(trunks, link.switch).items():
            side = trunks[number].ends.index(other)
            leading[other] = switch.interface(_end(number, side))
        # The trunks have that entry if a node is started again.
        switch.rtnetlink.ask(*(forward(one, link.mac) for one in leading.values()))
        bring_up(port)
        return port

    @staticmethod
    def _read(
        name: str,
        link: LinkSpec,
        left_out: tuple[str, ...],
        ends: tuple[Interface, Interface],
        found: Sequence[Qdisc | None] = (),
        *,
        control: str = "",
    ) -> AttachedLink:
        """Read a link, except for its qdiscs if they are ``found`` already."""
        (eth0, port), (up, down) = ends, qdiscs_of(link)
        found = found or [tc.read_back(one.rtnetlink, one.index) for one in ends]
        return AttachedLink(
            node=name,
            up=up,
            up_found=found[0],
            down=down,
            down_found=found[1],
            node_offloads=read_offloads(eth0.control, eth0.name),
            port_offloads=read_offloads(port.control, port.name),
            congestion_control=control,
            left_out=left_out,
            mtu=link.mtu or DEFAULT_MTU,
            mtus_found=(mtu_of(eth0), mtu_of(port)),
        )


def _link_of(node: NodeSpec) -> tuple[str, LinkSpec]:
    """Return the owner of a node's link, and the link; NodeError without one."""
    for owned in owned_links([node]):
        return owned
    raise NodeError(f"{node.name}: cannot attach a link: the plan has none for this node")


def _add_bridge(switch: Sockets, name: str) -> int:
    """Create a bridge and bring it up; return its index."""
    off = ("IFLA_BR_STP_STATE", "IFLA_BR_FORWARD_DELAY", "IFLA_BR_MCAST_SNOOPING")
    switch.rtnetlink.ask(new_link(name, "bridge", *((option, 0) for option in off)))
    bridge = switch.interface(name)
    bring_up(bridge)
    return bridge.index


def _new_veth(name: str, *attributes: Attribute, peer: Sequence[Attribute]) -> Request:
    """Return the request that creates two connected interfaces."""
    return new_link(name, "veth", ("VETH_INFO_PEER", tuple(peer)), attributes=attributes)


def _check_offload(name: str, link: LinkSpec, network: NetworkSpec) -> None:
    """Refuse a change that needs the offloads off, where they were turned on."""
    if needs_packets(link) and network.offload == "on":
        raise NodeError(
            f"{name}: this change requires segmentation offloads off, but they are on.",
            hint="Start the run with `--set network.offload=off`.",
        )


def _end(number: int, side: int) -> str:
    """Return the name of a trunk's end at its first or its second switch."""
    return f"trunk{number}.{side}"


def _shape(
    name: str, link: LinkSpec, offload: Offload, *, eth0: Interface, port: Interface
) -> list[Qdisc | None]:
    """Shape both directions at their ends, each read back and compared; return what was read."""
    (up, down), found = qdiscs_of(link), []
    if offload == "auto" and needs_packets(link):
        offload = "off"
    for direction, end, qdisc in (("up", eth0, up), ("down", port, down)):
        found.append(tc.shape(end.rtnetlink, end.index, qdisc, where=f"{name}: {direction}"))
        set_offloads(end.control, end.name, offload=offload, where=f"{name}: {direction}")
    return found


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
