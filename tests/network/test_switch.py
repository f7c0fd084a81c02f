from __future__ import annotations

import io
import os
import socket
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from testbed.errors import HostError, NodeError
from testbed.host.namespaces import inside, scratch
from testbed.network.capture import HEADER, capture, open_capture
from testbed.network.counters import InterfaceCounters, read_interface
from testbed.network.interfaces import Neighbour, bring_up, give_address, sockets
from testbed.network.qdiscs import TokenBucket
from testbed.network.sock_diag import SocketDiagnosis
from testbed.network.switch import Switch
from testbed.values.topology import Direction, NetworkSpec, NodeSpec
from testbed.values.units import Duration, Rate

pytestmark = pytest.mark.root

SLOW = Direction(rate=Rate.parse("1mbit"))
FAST = Direction(rate=Rate.parse("10mbit"))


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def namespace() -> int:
    return Path("/proc/thread-self/ns/net").stat().st_ino


def test_a_link_has_the_plans_addresses_and_qdiscs(
    lab: Any, spec: Callable[..., NodeSpec], iproute: Callable[..., Any]
) -> None:
    ps = spec("ps", 1, role="ps")
    node = lab.node(spec("w0", 258, up=SLOW, down=FAST), ps)
    assert node.link.up == node.link.up_found == TokenBucket(SLOW.rate, 3028, 12_500)
    assert node.link.down == node.link.down_found == TokenBucket(FAST.rate, 5000, 125_000)
    assert node.link.left_out == ()
    with iproute(node.peer.pid) as ip:
        (link,) = ip.link("get", ifname="eth0")
        addresses = [
            (address.get_attr("IFA_ADDRESS"), address["prefixlen"])
            for address in ip.get_addr(index=link["index"])
        ]
    assert link.get_attr("IFLA_ADDRESS") == "02:00:0a:4d:01:02"
    assert addresses == [("10.77.1.2", 16)]  # and no IPv6 address
    known = Path(f"/proc/{node.peer.pid}/net/arp").read_text().splitlines()[1:]
    assert [line.split()[:4] for line in known] == [
        ["10.77.0.1", "0x1", "0x6", "02:00:0a:4d:00:01"]  # 6: complete and permanent
    ]


def test_the_report_of_the_agent_is_plain_data(lab: Any, spec: Callable[..., NodeSpec]) -> None:
    node = lab.node(spec("w0", 2, up=SLOW))
    offloads = {"tso": True, "gso": True, "gro": False}
    assert node.link.as_dict() == {
        "node": "w0",
        "up": "tbf rate 1mbit burst 3028 B queue 100ms (12500 B)",
        "up_found": "tbf rate 1mbit burst 3028 B queue 100ms (12500 B)",
        "down": "not shaped",
        "down_found": "not shaped",
        "node_offloads": offloads,
        "port_offloads": offloads,
        "congestion_control": "cubic",
        "left_out": [],
        "mtu": 1500,
        "mtus_found": (1500, 1500),
        "unseeded": [],
        "differences": [],
    }


def test_inspection_reads_the_kernel_and_not_the_request(
    lab: Any, spec: Callable[..., NodeSpec]
) -> None:
    from testbed.network import tc

    node = lab.node(spec("w0", 2, up=SLOW, down=FAST))
    with sockets() as here:
        tc.apply(here.rtnetlink, here.interface("w0").index, None)
    link = lab.switch.inspect(node.spec, pid=node.peer.pid, network=lab.network)
    assert link.down == TokenBucket(FAST.rate, 5000, 125_000)
    assert link.down_found is None
    assert link.up_found == link.up
    assert link.differences() == [
        "down: configured tbf rate 10mbit burst 5000 B queue 100ms (125000 B), "
        "the kernel has not shaped"
    ]


def test_both_ends_have_the_mtu(
    lab: Any, spec: Callable[..., NodeSpec], iproute: Callable[..., Any]
) -> None:
    """A change by hand is found by reading it back."""
    node = lab.node(spec("w0", 2, up=SLOW, down=FAST, mtu=1400))
    assert (node.link.mtu, node.link.mtus_found) == (1400, (1400, 1400))
    assert node.link.differences() == []
    assert node.link.up == node.link.up_found == TokenBucket(SLOW.rate, 2828, 12_500)
    with iproute() as ip:
        ip.link("set", index=socket.if_nametoindex("w0"), mtu=1300)
    link = lab.switch.inspect(node.spec, pid=node.peer.pid, network=lab.network)
    assert link.differences() == ["down: mtu: configured 1400, the kernel has 1300"]


@pytest.mark.parametrize(
    ("mtus", "largest"), [((1400, None), 1414), ((None, 1400), 1414), ((9000, 9000), 9014)]
)
def test_frames_are_as_long_as_both_ends_allow(
    lab: Any, spec: Callable[..., NodeSpec], mtus: tuple[int | None, int | None], largest: int
) -> None:
    """Through token buckets both ways. The traffic counted is that of the frames."""
    lab.network = NetworkSpec(offload="off")
    ps, one = spec("ps", 1, role="ps", mtu=mtus[1]), spec("w0", 2, up=FAST, down=FAST, mtu=mtus[0])
    server, client = lab.node(ps, one), lab.node(one, ps)
    assert server.peer.tell("serve 5000") == "serving"
    into = io.BytesIO()
    with open_capture("w0") as frames:
        assert client.peer.tell("connect 10.77.0.1 5000") == "connected"
        assert client.peer.tell("exchange 200000 200000 1") == "done"
        found = capture(frames, into, seconds=0.3, most_bytes=10**7, steady=time.monotonic)
    assert found.dropped == 0
    data, at, lengths = into.getvalue(), len(HEADER), list[tuple[bool, int]]()
    while at < len(data):
        length = int.from_bytes(data[at + 8 : at + 12], "little")
        lengths.append((data[at + 16 + 5] == 1, length))  # the last byte of the receiver's MAC
        at += 16 + length
    assert {max(n for up, n in lengths if up == way) for way in (True, False)} == {largest}
    up, down = (sum(length for sent, length in lengths if sent == way) for way in (True, False))
    counted = read_interface(client.peer.pid)
    assert (counted.tx_bytes, counted.rx_bytes) == (up, down)
    packets = {way: sum(sent == way for sent, _ in lengths) for way in (True, False)}
    assert (counted.tx_packets, counted.rx_packets) == (packets[True], packets[False])
    assert up + down - 66 * len(lengths) >= 400_000


def test_nodes_reach_exactly_their_neighbours(lab: Any, spec: Callable[..., NodeSpec]) -> None:
    specs = [spec("ps", 1, role="ps"), spec("w0", 2), spec("w1", 3)]
    ps, first, second = (
        lab.node(specs[0], *specs[1:]),
        lab.node(specs[1], specs[0]),
        lab.node(specs[2], specs[0]),
    )
    ps.peer.tell("reflect 7")
    assert len(first.peer.tell("ping 10.77.0.1 7 5").split()) == 5
    one_way = InterfaceCounters(5 * 43, 5, 5 * 43, 5)  # 14 + 20 + 8 + 1 bytes per datagram
    assert read_interface(first.peer.pid) == one_way
    assert read_interface(ps.peer.pid) == one_way
    assert read_interface(second.peer.pid) == InterfaceCounters()


def test_a_node_restarts_while_its_predecessor_still_sends(
    lab: Any, spec: Callable[..., NodeSpec]
) -> None:
    ps, worker = lab.pair(up=SLOW)
    worker.peer.tell("flood 60")
    with closing(SocketDiagnosis(ps.peer.pid)) as sockets:
        while sum(one.counters.received_bytes for one in sockets.connected()) < 50_000:
            pass  # fills the worker's queue
    worker.peer.process.kill()
    worker.peer.process.wait()
    again = lab.node(worker.spec, ps.spec)
    ps.peer.tell("reflect 7")
    assert len(again.peer.tell("ping 10.77.0.1 7 5").split()) == 5


def test_an_idle_link_carries_no_packet_at_all(lab: Any, spec: Callable[..., NodeSpec]) -> None:
    nodes = [lab.node(spec(f"w{number}", number)) for number in range(3)]
    time.sleep(1.5)  # router solicitations and multicast reports would come within a second
    assert [read_interface(node.peer.pid) for node in nodes] == [InterfaceCounters()] * 3


def test_connections_use_the_same_congestion_control_on_every_host(lab: Any) -> None:
    from pyroute2 import DiagSocket

    ps, worker = lab.pair()
    assert ps.link.congestion_control == "cubic"
    for node, family in ((ps, 10), (worker, 2)):
        with inside(node.peer.pid):
            diag = DiagSocket()
        with diag:
            diag.bind()
            found = {
                connection.get_attr("INET_DIAG_CONG")
                for connection in diag.get_sock_stats(family=family, extensions=1 << 3, protocol=6)
                if connection["idiag_state"] == 1
            }
        assert found == {"cubic"}


def test_attaching_leaves_no_thread_no_descriptor_and_no_other_namespace(
    lab: Any, spec: Callable[..., NodeSpec]
) -> None:
    node = lab.node(spec("w0", 2, up=SLOW))
    here, open_before = namespace(), descriptors()
    threads = len(list(Path("/proc/self/task").iterdir()))
    lab.switch.inspect(node.spec, pid=node.peer.pid, network=lab.network)
    lab.node(spec("w1", 3, up=SLOW))
    assert namespace() == here
    assert descriptors() == open_before + 2  # the new process's stdin and stdout
    assert len(list(Path("/proc/self/task").iterdir())) == threads


def test_a_missing_process_is_an_error_that_names_the_node(
    spec: Callable[..., NodeSpec],
) -> None:
    with scratch():
        switch = Switch.build()
        with pytest.raises(NodeError, match="w7: its link cannot be created"):
            switch.attach(spec("w7", 9), pid=2**22 + 1, network=NetworkSpec())


def test_a_node_without_a_link_has_none_to_attach(spec: Callable[..., NodeSpec]) -> None:
    from dataclasses import replace

    evaluator = replace(spec("evaluator", 9, role="evaluator"), link=None)
    with scratch(), pytest.raises(NodeError, match="evaluator: cannot attach a link"):
        Switch.build().attach(evaluator, pid=os.getpid(), network=NetworkSpec())


def test_a_namespace_holds_only_one_switch() -> None:
    with scratch():
        Switch.build()
        with pytest.raises(HostError, match=r"cannot create the switch: .*exists"):
            Switch.build()


def test_a_link_that_tc_cannot_shape_is_refused_by_name(
    lab: Any, spec: Callable[..., NodeSpec]
) -> None:
    with pytest.raises(NodeError, match="w0: its link cannot be shaped: down: rate 100bit"):
        lab.node(spec("w0", 2, down=Direction(rate=Rate(100))))


def test_without_netem_a_delay_is_refused_or_omitted_with_a_warning(
    lab: Any, spec: Callable[..., NodeSpec]
) -> None:
    node = spec("w0", 2, up=Direction(rate=SLOW.rate, delay=Duration.parse("20ms")))
    asked = []

    def has_no_netem() -> bool:
        asked.append(True)
        return False

    with scratch():
        lab.switch = Switch.build(has_netem=has_no_netem)
        with pytest.raises(HostError, match="needed for class slow: up"):
            lab.node(node)
        lab.network = NetworkSpec(missing="warn")
        attached = lab.node(node)
    assert attached.link.left_out == ("class slow: up.delay 20ms",)
    assert attached.link.up_found == TokenBucket(SLOW.rate, 3028, 12_500)
    assert asked == [True]


def test_an_attached_link_is_changed(lab: Any, spec: Callable[..., NodeSpec]) -> None:
    node = lab.node(spec("w0", 2, up=SLOW, down=SLOW))
    changed = spec("w0", 2, up=FAST, down=SLOW)
    lab.switch.reshape(changed, pid=node.peer.pid, network=lab.network)
    found = lab.switch.inspect(changed, pid=node.peer.pid, network=lab.network)
    assert found.differences() == []
    assert isinstance(found.up_found, TokenBucket)
    assert found.up_found.rate == FAST.rate
    before = lab.switch.inspect(node.spec, pid=node.peer.pid, network=lab.network)
    assert "up: rate: configured 1mbit, the kernel has 10mbit" in before.differences()


def test_a_change_of_an_ended_node_names_it(lab: Any, spec: Callable[..., NodeSpec]) -> None:
    node = lab.node(spec("w0", 2))
    node.peer.process.kill()
    node.peer.process.wait()
    with pytest.raises(NodeError, match="w0: its link cannot be changed"):
        lab.switch.reshape(node.spec, pid=node.peer.pid, network=lab.network)


def test_a_neighbour_that_was_answered_already_gets_a_permanent_entry(
    iproute: Callable[..., Any],
) -> None:
    # Clients call a restarted node as soon as its link is up: to answer them the kernel has
    # started to resolve their addresses, and has entries for them.
    neighbour = Neighbour("10.77.0.1", "02:00:0a:4d:00:01")
    with (
        scratch(),
        sockets() as here,
        iproute() as ip,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as caller,
    ):
        ip.link("add", ifname="eth0", kind="veth", peer={"ifname": "port"})
        bring_up(here.interface("port"))
        eth0 = here.interface("eth0")
        ip.addr("add", index=eth0.index, address="10.77.0.9", prefixlen=16)
        bring_up(eth0)
        caller.sendto(b"", (neighbour.address, 9))
        asked = Path("/proc/thread-self/net/arp").read_text().splitlines()[1:]
        assert [line.split()[:4] for line in asked] == [
            [neighbour.address, "0x1", "0x0", "00:00:00:00:00:00"]  # 0: incomplete
        ]
        give_address(eth0, "10.77.0.2", prefix=16, neighbours=[neighbour])
        known = Path("/proc/thread-self/net/arp").read_text().splitlines()[1:]
    assert [line.split()[:4] for line in known] == [
        [neighbour.address, "0x1", "0x6", neighbour.mac]  # complete and permanent
    ]


def test_the_first_packet_over_a_new_link_arrives(lab: Any, spec: Callable[..., NodeSpec]) -> None:
    one, others = spec("w0", 2), [spec(f"w{number}", 2 + number) for number in range(1, 9)]
    sender = lab.node(one, *others)
    for other in others:
        lab.node(other, one, tell="reflect 7000")
        assert sender.peer.tell(f"ping {other.link.address} 7000 1")
