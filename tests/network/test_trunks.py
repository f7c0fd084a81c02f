"""Links between switches: what the nodes of one side send to the other shares them."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from statistics import median
from typing import Any

import pytest

from testbed.errors import HostError
from testbed.host.namespaces import scratch
from testbed.network import tc
from testbed.network.counters import read_interface
from testbed.network.interfaces import sockets
from testbed.network.qdiscs import TokenBucket
from testbed.network.switch import Switch
from testbed.values.topology import CORE, Direction, LinkSpec, NetworkSpec, NodeSpec, Trunk
from testbed.values.units import Duration, Rate

pytestmark = pytest.mark.root

RATE = Rate.parse("10mbit")
SHARED = Trunk("uplink", ("edge", CORE), LinkSpec("", "", up=Direction(rate=RATE)))
SECONDS = 8.0
UNSHAPED = Direction()


def on(switch: str, node: NodeSpec) -> NodeSpec:
    """The node, with its link at another switch."""
    assert node.link is not None
    return replace(node, link=replace(node.link, switch=switch))


def site(
    lab: Any, spec: Callable[..., NodeSpec], count: int, *, up: Direction = UNSHAPED
) -> tuple[Any, list[Any]]:
    """A server in the core, and connected clients at the edge, each with a link of its own."""
    lab.network = NetworkSpec(trunks=(SHARED,))
    ps = spec("ps", 1, role="ps")
    specs = [on("edge", spec(f"w{number}", number + 2, up=up)) for number in range(count)]
    server = lab.node(ps, *specs)
    assert server.peer.tell("serve 5000") == "serving"
    clients = [lab.node(one, ps, *(other for other in specs if other != one)) for one in specs]
    for client in clients:
        assert client.peer.tell("connect 10.77.0.1 5000") == "connected"
    return server, clients


def test_a_trunk_is_read_back_from_the_kernel(lab: Any, spec: Callable[..., NodeSpec]) -> None:
    site(lab, spec, 1)
    (found,) = lab.switch.inspect_trunks()
    assert (found.node, found.up, found.down) == ("uplink", TokenBucket(RATE, 5000, 125_000), None)
    assert found.differences() == []
    with sockets() as here:
        tc.apply(here.rtnetlink, here.interface("trunk0.0").index, None)
    (changed,) = lab.switch.inspect_trunks()
    assert [text.partition(":")[0] for text in changed.differences()] == ["up"]


def test_a_trunk_is_changed_while_nodes_use_it(lab: Any, spec: Callable[..., NodeSpec]) -> None:
    site(lab, spec, 1)
    slow = replace(SHARED.link, up=Direction(rate=Rate.parse("1mbit")))
    lab.switch.reshape_trunk("uplink", slow)
    assert lab.switch.trunk_links() == {"uplink": slow}
    (found,) = lab.switch.inspect_trunks()
    assert found.up == found.up_found == TokenBucket(Rate.parse("1mbit"), 3028, 12_500)
    lab.node(spec("w9", 9))  # a later node changes nothing
    assert lab.switch.inspect_trunks() == [found]


def test_a_node_that_is_started_again_is_reached_over_the_trunk(
    lab: Any, spec: Callable[..., NodeSpec]
) -> None:
    _, (client,) = site(lab, spec, 1)
    client.peer.process.kill()
    client.peer.process.wait()
    again = lab.node(client.spec, spec("ps", 1, role="ps"))
    assert again.peer.tell("connect 10.77.0.1 5000") == "connected"
    assert again.peer.tell("exchange 1000 1000 1") == "done"


def test_frames_within_a_site_do_not_pass_its_trunk(
    lab: Any, spec: Callable[..., NodeSpec]
) -> None:
    """Neither 1 MB each way, nor a copy of it by flooding: only the end of a connection does."""
    server, (one, other) = site(lab, spec, 2)
    with sockets() as here:
        uplink = here.interface("trunk0.0")
        before, seen = lab.counted(uplink).bytes, read_interface(server.peer.pid).rx_bytes
        assert one.peer.tell("serve 6000") == "serving"
        assert other.peer.tell("connect 10.77.0.2 6000") == "connected"
        assert other.peer.tell("exchange 1000000 1000000 1") == "done"
        assert lab.counted(uplink).bytes - before < 1000
    assert read_interface(server.peer.pid).rx_bytes - seen < 1000


def test_without_netem_a_delay_between_switches_is_refused(
    lab: Any, spec: Callable[..., NodeSpec]
) -> None:
    far = Trunk("wan", ("far", CORE), LinkSpec("", "", up=Direction(delay=Duration(0.02))))
    with scratch():
        lab.switch = Switch.build(has_netem=lambda: False)
        lab.network = NetworkSpec(trunks=(far,))
        with pytest.raises(HostError, match=r"link wan: up.delay 20ms"):
            lab.node(spec("w0", 2))
        lab.network = NetworkSpec(trunks=(far,), missing="warn")
        lab.node(spec("w0", 2))
        (found,) = lab.switch.inspect_trunks()
    assert found.left_out == ("link wan: up.delay 20ms",)


@pytest.mark.slow
@pytest.mark.alone
def test_three_senders_share_the_rate_of_their_trunk(
    lab: Any, spec: Callable[..., NodeSpec], record_property: Any
) -> None:
    """By hand: 10 mbit/s in all, about a third of it each.

    TCP does not divide it evenly within seconds; but as two have at most 4 mbit/s of their own
    each, the third has at least 2.
    """
    _, clients = site(lab, spec, 3, up=Direction(rate=Rate.parse("4mbit")))

    def sent() -> list[int]:
        return [read_interface(client.peer.pid).tx_bytes for client in clients]

    with sockets() as here:
        uplink = here.interface("trunk0.0")
        for client in clients:
            client.peer.tell(f"flood {SECONDS + 4}")
        while lab.counted(uplink).bytes < RATE.bytes_per_second:  # past the slow starts
            time.sleep(0.01)
        total, each, begin = lab.counted(uplink).bytes, sent(), time.monotonic()
        time.sleep(SECONDS)
        passed, seconds = lab.counted(uplink).bytes - total, time.monotonic() - begin
        shares = [(now - then) / passed for then, now in zip(each, sent(), strict=True)]
    rate = passed * 8 / seconds
    record_property("shared", f"{rate / 1e6:.3f} mbit, {shares}")
    print(f"{rate / 1e6:.3f} mbit, shares {[round(share, 3) for share in shares]}")
    assert rate == pytest.approx(float(RATE), rel=0.02)
    assert all(0.18 < share < 0.42 for share in shares)


@pytest.mark.netem
@pytest.mark.alone
def test_delays_of_links_and_trunks_add_up(lab: Any, spec: Callable[..., NodeSpec]) -> None:
    """Node 5 ms up, trunks 10 and 20 ms each way: a round trip of 65 ms."""
    ways = [Direction(delay=Duration(seconds)) for seconds in (0.005, 0.01, 0.02)]
    trunks = (
        Trunk("west", ("a", CORE), LinkSpec("", "", ways[1], ways[1])),
        Trunk("east", (CORE, "b"), LinkSpec("", "", ways[2], ways[2])),
    )
    lab.network = NetworkSpec(trunks=trunks)
    ps, worker = on("b", spec("ps", 1, role="ps")), on("a", spec("w0", 2, up=ways[0]))
    server, client = lab.node(ps, worker), lab.node(worker, ps)
    server.peer.tell("reflect 7")
    client.peer.tell("ping 10.77.0.1 7 3")
    found = median(float(text) for text in client.peer.tell("ping 10.77.0.1 7 15").split())
    print(f"65 ms: {found:.2f} ms")
    assert found == pytest.approx(65, rel=0.05)
    assert [one.differences() for one in lab.switch.inspect_trunks()] == [[], []]
