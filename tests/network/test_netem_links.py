"""Delays and losses as they come out, where the kernel has netem."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from typing import Any

import pytest

from testbed.network.offloads import Offloads
from testbed.network.qdiscs import Netem
from testbed.topology import NodeSpec, Shape
from testbed.units import Duration, Rate

pytestmark = [pytest.mark.root, pytest.mark.netem]


def test_a_delayed_link_is_read_back_and_delays(lab: Any, spec: Callable[..., NodeSpec]) -> None:
    rate = Rate.parse("10mbit")
    up = Shape(rate=rate, delay=Duration.parse("30ms"))
    down = Shape(rate=rate, delay=Duration.parse("20ms"))
    ps, worker = spec("ps", 1, role="ps"), spec("w0", 2, up=up, down=down)
    server, client = lab.node(ps, worker), lab.node(worker, ps)
    assert isinstance(client.link.up_found, Netem)
    assert client.link.differences() == []
    server.peer.tell("reflect 7")
    trips = [float(text) for text in client.peer.tell("ping 10.77.0.1 7 11").split()]
    assert median(trips) == pytest.approx(50, rel=0.05)


def test_a_lossy_link_has_no_offloads_and_loses(lab: Any, spec: Callable[..., NodeSpec]) -> None:
    ps, worker = spec("ps", 1, role="ps"), spec("w0", 2, down=Shape(loss=0.3))
    server, client = lab.node(ps, worker), lab.node(worker, ps)
    off = Offloads(tso=False, gso=False, gro=False)
    assert (client.link.node_offloads, client.link.port_offloads) == (off, off)
    server.peer.tell("reflect 7")
    answered = len(client.peer.tell("ping 10.77.0.1 7 40 0.1").split())
    assert 40 * 0.7 - 4 * 2.9 <= answered < 40  # four standard deviations
