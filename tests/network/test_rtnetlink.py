from __future__ import annotations

import errno
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from testbed.host.namespaces import LOOPBACK_INDEX, scratch
from testbed.network.interfaces import Interface, Neighbour, give_address, sockets
from testbed.network.rtnetlink import AT_ONCE, CREATE_NEW, Flag, Kind, Request, request

pytestmark = pytest.mark.root


@pytest.fixture
def eth0(iproute: Callable[..., Any]) -> Iterator[Interface]:
    """An interface in a network namespace of the test."""
    with scratch(), sockets() as here:
        with iproute() as ip:
            ip.link("add", ifname="eth0", kind="veth", peer={"ifname": "port"})
        yield here.interface("eth0")


def neighbours(count: int) -> list[Neighbour]:
    return [
        Neighbour(f"10.77.{n // 256}.{n % 256}", f"02:00:00:00:{n // 256:02x}:{n % 256:02x}")
        for n in range(2, count + 2)
    ]


def test_a_parameter_server_knows_as_many_workers_as_a_switch_has_ports(eth0: Interface) -> None:
    known = neighbours(1022)
    give_address(eth0, "10.77.0.1", prefix=16, neighbours=known)
    lines = Path("/proc/thread-self/net/arp").read_text().splitlines()[1:]
    assert {(line.split()[0], line.split()[3]) for line in lines} == {
        (one.address, one.mac) for one in known
    }


def address(number: int, *, index: int) -> Request:
    fields = {"family": socket.AF_INET, "index": index, "prefixlen": 32}
    return request(Kind.NEW_ADDRESS, CREATE_NEW, ("IFA_LOCAL", f"10.77.0.{number}"), **fields)


def test_the_first_refused_request_is_raised_and_the_next_are_executed(eth0: Interface) -> None:
    """The first exists already, then there is no such interface."""
    from pyroute2.netlink.exceptions import NetlinkError

    first, index = eth0.rtnetlink, eth0.index
    first.ask(address(1, index=index))
    asked = [address(1, index=index), address(2, index=index), address(3, index=index + 99)]
    with pytest.raises(NetlinkError) as refused:
        first.ask(*asked)
    assert refused.value.code == errno.EEXIST
    assert str(refused.value) == "(17, 'File exists')"
    found = first.ask(request(Kind.GET_ADDRESS, Flag.DUMP))
    assert [one.get_attr("IFA_LOCAL") for one in found] == ["10.77.0.1", "10.77.0.2"]


def test_if_all_of_many_requests_are_refused_the_first_is_raised(eth0: Interface) -> None:
    from pyroute2.netlink.exceptions import NetlinkError

    wrong = [address(1, index=eth0.index + 99) for _ in range(2 * AT_ONCE)]
    with pytest.raises(NetlinkError) as refused:
        eth0.rtnetlink.ask(*wrong)
    assert refused.value.code == errno.ENODEV
    (link,) = eth0.rtnetlink.ask(request(Kind.GET_LINK, 0, index=LOOPBACK_INDEX))
    assert link.get_attr("IFLA_IFNAME") == "lo"  # no reply to an earlier request is left


def test_no_requests_have_no_answers(eth0: Interface) -> None:
    assert eth0.rtnetlink.ask() == []
