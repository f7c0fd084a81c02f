from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from dataclasses import replace
from errno import ENOENT
from typing import Any

import pytest

from testbed.errors import HostError, NodeError
from testbed.host.namespaces import scratch
from testbed.network import tc
from testbed.network.qdiscs import Netem, Qdisc, TokenBucket, differences
from testbed.network.rtnetlink import Flag, Kind, Rtnetlink, request
from testbed.values.units import Duration, Rate

pytestmark = pytest.mark.root

TEN = TokenBucket(Rate.parse("10mbit"), 5000, 125_000)


@pytest.fixture
def veth(iproute: Callable[..., Any]) -> Iterator[tuple[Rtnetlink, int]]:
    """An interface in a network namespace of the test, and a socket there."""
    with scratch(), iproute() as ip, Rtnetlink() as rtnetlink:
        ip.link("add", ifname="a", kind="veth", peer={"ifname": "b"})
        index = socket.if_nametoindex("a")
        ip.link("set", index=index, state="up")
        yield rtnetlink, index


@pytest.mark.parametrize(
    "qdisc",
    [
        TokenBucket(Rate.parse("1kbit"), 3028, 3028),
        TokenBucket(Rate.parse("1mbit"), 3028, 12_500),
        TokenBucket(Rate.parse("10mbit"), 5000, 125_000),
        TokenBucket(Rate.parse("1.234567mbit"), 3028, 15_432),
        TokenBucket(Rate.parse("1gbit"), 500_000, 12_500_000),
        TokenBucket(Rate.parse("34gbit"), 17_000_000, 425_000_000),
    ],
)
def test_a_token_bucket_is_read_back_as_installed(
    veth: tuple[Rtnetlink, int], qdisc: TokenBucket
) -> None:
    rtnetlink, index = veth
    found = tc.shape(rtnetlink, index, qdisc, where="w0: up")
    assert isinstance(found, TokenBucket)
    assert differences(qdisc, found) == []


def test_one_qdisc_replaces_another_and_none_removes_it(veth: tuple[Rtnetlink, int]) -> None:
    rtnetlink, index = veth
    assert tc.read_back(rtnetlink, index) is None
    tc.shape(rtnetlink, index, None, where="w0: up")
    tc.shape(rtnetlink, index, TokenBucket(Rate.parse("1mbit"), 3028, 12_500), where="w0: up")
    wider = TokenBucket(Rate.parse("10mbit"), 5000, 125_000)
    assert tc.shape(rtnetlink, index, wider, where="w0: up") == wider
    assert tc.shape(rtnetlink, index, None, where="w0: up") is None
    assert tc.read_back(rtnetlink, index) is None


def test_an_unexpected_qdisc_is_an_error(
    veth: tuple[Rtnetlink, int], iproute: Callable[..., Any]
) -> None:
    rtnetlink, index = veth
    with iproute() as ip:
        ip.tc("add", "pfifo", index, limit=10)
    with pytest.raises(NodeError, match="unexpected root qdisc pfifo"):
        tc.read_back(rtnetlink, index)


class Poor(Rtnetlink):
    """A kernel built without qdiscs."""

    def ask(self, *_: object) -> list[Any]:
        from pyroute2.netlink.exceptions import NetlinkError

        raise NetlinkError(ENOENT, "No such file or directory")


def test_a_qdisc_missing_in_the_kernel_names_its_option() -> None:
    match = "w3: up: the kernel refused tbf rate 10mbit"
    with Poor() as kernel, pytest.raises(HostError, match=match) as refusal:
        tc.shape(kernel, 2, TokenBucket(Rate.parse("10mbit"), 5000, 125_000), where="w3: up")
    assert "CONFIG_NET_SCH_TBF" in refusal.value.hint


class Deaf(Rtnetlink):
    """A kernel that accepts every request and ignores it."""

    def ask(self, *_: object) -> list[Any]:
        return []


def test_a_missing_qdisc_is_an_error_that_names_node_and_direction() -> None:
    match = r"w3: down: configured tbf rate 10mbit .* not shaped"
    with Deaf() as kernel, pytest.raises(NodeError, match=match):
        tc.shape(kernel, 2, TokenBucket(Rate.parse("10mbit"), 5000, 125_000), where="w3: down")


@pytest.mark.netem
@pytest.mark.parametrize(
    "qdisc",
    [
        Netem(Duration.parse("20ms"), Duration(0), 0.0, None, 99_076),
        Netem(Duration.parse("20ms"), Duration.parse("3.3ms"), 0.0, TEN, 103, "uniform"),
        Netem(Duration(0), Duration(0), 0.013, None, 1000, seed=2**63),
        Netem(Duration(0), Duration(0), 0.013, TEN, 1000, loss_correlation=0.9),
        Netem(Duration.parse("200s"), Duration(0), 1.0, None, 5),
    ],
)
def test_a_netem_is_read_back_as_installed(veth: tuple[Rtnetlink, int], qdisc: Netem) -> None:
    rtnetlink, index = veth
    assert isinstance(tc.shape(rtnetlink, index, qdisc, where="w0: up"), Netem)


@pytest.mark.netem
def test_every_qdisc_replaces_every_other(veth: tuple[Rtnetlink, int]) -> None:
    rtnetlink, index = veth
    plain = Netem(Duration.parse("20ms"), Duration(0), 0.01, None, 103)
    line = Netem(Duration.parse("20ms"), Duration.parse("1ms"), 0.0, TEN, 103)
    bursts = Netem(Duration(0), Duration(0), 0.01, TEN, 103, loss_correlation=0.5)
    qdiscs: list[Qdisc | None] = [TEN, plain, None, line, TEN, line, plain, bursts, line, bursts]
    for qdisc in qdiscs:
        found = tc.shape(rtnetlink, index, qdisc, where="w0: up")
        assert differences(qdisc, found) == []


@pytest.mark.netem
def test_a_change_keeps_queued_packets(veth: tuple[Rtnetlink, int]) -> None:
    rtnetlink, index = veth
    line = Netem(Duration.parse("20ms"), Duration(0), 0.0, TEN, 103)
    tc.shape(rtnetlink, index, line, where="w0: up")
    before = handle(rtnetlink, index)
    tc.shape(rtnetlink, index, replace(line, delay=Duration.parse("40ms")), where="w0: up")
    assert handle(rtnetlink, index) == before


def handle(rtnetlink: Rtnetlink, index: int) -> int:
    """The kernel's identity of a root qdisc; a new one gets a new one."""
    asked = request(Kind.GET_QDISC, Flag.ECHO, index=index, parent=tc.ROOT)
    found: int = rtnetlink.ask(asked)[0]["handle"]
    return found
