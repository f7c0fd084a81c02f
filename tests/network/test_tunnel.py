"""Switches of two hosts joined by a tunnel. Hosts and switches are namespaces of their own."""

from __future__ import annotations

import errno
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from testbed.errors import HostError
from testbed.host.namespaces import scratch
from testbed.network.interfaces import Neighbour, give_address, sockets
from testbed.network.switch import Switch
from testbed.network.tunnel import TUNNEL, Tunnel, explain
from testbed.values.topology import Direction, NetworkSpec, NodeSpec
from testbed.values.units import Rate

pytestmark = pytest.mark.root

MTU = 1450
TEN = Direction(rate=Rate.parse("10mbit"))
"""A push of 1.25 MB takes a second."""


@pytest.fixture
def cable(new_peer: Callable[[], Any], iproute: Callable[..., Any]) -> tuple[Any, Any]:
    """Two hosts with a cable between them, 10.0.0.1 and 10.0.0.2."""
    one, other = new_peer(), new_peer()
    with iproute(one.pid) as ip:
        peer = {"ifname": "cable", "net_ns_pid": other.pid}
        ip.link("add", ifname="cable", kind="veth", peer=peer)
    for number, host in enumerate((one, other), start=1):
        with sockets(host.pid) as there:
            address = f"10.0.0.{number}"
            give_address(there.interface("cable"), address, prefix=24, neighbours=())
    return one, other


def test_a_link_to_another_host_has_its_rate_and_nothing_is_flooded(
    cable: tuple[Any, Any],
    spec: Callable[..., NodeSpec],
    new_peer: Callable[[], Any],
    iproute: Callable[..., Any],
) -> None:
    ps = spec("ps", 1, role="ps", mtu=MTU)
    worker = spec("w0", 2, up=TEN, down=TEN, mtu=MTU)
    peers = []
    with ExitStack() as held:
        for number, (host, node, far) in enumerate(
            ((cable[0], ps, worker), (cable[1], worker, ps)), start=1
        ):
            # A switch's namespace lives as long as a port in it has a peer.
            held.enter_context(scratch())
            switch = Switch.build(tunnel=Tunnel(77, f"10.0.0.{number}", MTU), host=host.pid)
            peers.append(peer := new_peer())
            assert far.link is not None
            neighbour = Neighbour(far.link.address, far.link.mac, f"10.0.0.{3 - number}")
            switch.attach(node, pid=peer.pid, network=NetworkSpec(), neighbours=[neighbour])
            with iproute() as ip:
                entries = {
                    (one.get_attr("NDA_LLADDR"), one.get_attr("NDA_DST"))
                    for one in ip.fdb("dump")
                    if one["ifindex"] == socket.if_nametoindex(TUNNEL)
                }
            assert (far.link.mac, f"10.0.0.{3 - number}") in entries  # of the device
            assert (far.link.mac, None) in entries  # of the bridge
            assert ("00:00:00:00:00:00", f"10.0.0.{3 - number}") not in entries
        server, client = peers
        assert server.tell("serve 5000") == "serving"
        assert client.tell("connect 10.77.0.1 5000") == "connected"
        begun = time.monotonic()
        assert client.tell("exchange 1250000 10 1") == "done"
        assert time.monotonic() - begun > 0.95  # the link carries no more: 10 Mbit


@pytest.mark.parametrize(
    ("tunnel", "refusal", "cure"),
    [
        (Tunnel(77, "10.0.0.9", MTU), "has the address 10.0.0.9", "org.edge-testbed.address"),
        (Tunnel(77, "10.0.0.1", 1451), "MTU of 1500, expected at least 1501", "mtu: 1450"),
    ],
)
def test_a_host_that_cannot_carry_the_tunnel_is_refused(
    cable: tuple[Any, Any], tunnel: Tunnel, refusal: str, cure: str
) -> None:
    with scratch(), pytest.raises(HostError, match=refusal) as refused:
        Switch.build(tunnel=tunnel, host=cable[0].pid)
    assert cure in refused.value.hint


def test_a_point_to_point_link_has_the_address_of_this_end(
    cable: tuple[Any, Any], iproute: Callable[..., Any]
) -> None:
    with iproute(cable[0].pid) as ip:
        (index,) = ip.link_lookup(ifname="cable")
        ip.addr("add", index=index, local="10.99.0.1", address="10.99.0.2", prefixlen=32)
    with scratch():
        Switch.build(tunnel=Tunnel(77, "10.99.0.1", MTU), host=cable[0].pid)
    with scratch(), pytest.raises(HostError, match=r"has the address 10\.99\.0\.2"):
        Switch.build(tunnel=Tunnel(77, "10.99.0.2", MTU), host=cable[0].pid)


def test_two_runs_of_one_number_are_refused(cable: tuple[Any, Any]) -> None:
    tunnel = Tunnel(77, "10.0.0.1", MTU)
    with scratch():
        first = Switch.build(tunnel=tunnel, host=cable[0].pid)
        with scratch(), pytest.raises(HostError, match="VXLAN 77 exists on this host"):
            Switch.build(tunnel=tunnel, host=cable[0].pid)
        del first


def test_a_port_that_a_program_has_is_refused(cable: tuple[Any, Any]) -> None:
    bind = "import socket; s = socket.socket(type=socket.SOCK_DGRAM); s.bind(('', 4789))"
    program = [sys.executable, "-c", f"{bind}; print(flush=True); input()"]
    command = ["nsenter", "-t", str(cable[0].pid), "-n", *program]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, **pipes) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"\n"
        with scratch(), pytest.raises(HostError, match="UDP port 4789 of this host") as refused:
            Switch.build(tunnel=Tunnel(77, "10.0.0.1", MTU), host=cable[0].pid)
        other.communicate(b"\n")
    assert "sudo ss -ulpn" in refused.value.hint


def test_a_kernel_without_vxlan_is_named() -> None:
    error = explain(errno.EOPNOTSUPP, Tunnel(77, "10.0.0.1", MTU))
    assert "cannot create the VXLAN device" in error.message
    assert "sudo modprobe vxlan" in error.hint


def test_the_tunnel_ends_with_the_namespace_of_the_switch(
    cable: tuple[Any, Any], eventually: Callable[[Callable[[], Any]], Any]
) -> None:
    listening = Path(f"/proc/{cable[0].pid}/net/udp")
    tunnel = Tunnel(77, "10.0.0.1", MTU)
    with scratch():
        Switch.build(tunnel=tunnel, host=cable[0].pid)
        assert ":12B5" in listening.read_text()  # 4789
    assert eventually(lambda: ":12B5" not in listening.read_text())
