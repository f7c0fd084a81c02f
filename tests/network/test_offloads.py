from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from testbed.network.offloads import Offloads, network_for
from testbed.values.topology import Direction, NetworkSpec, NodeSpec, Offload, Plan
from testbed.values.units import Duration, Rate

LOSSY = Direction(loss=0.01)


def plan(*nodes: NodeSpec, offload: Offload = "auto") -> Plan:
    return Plan("run", nodes, NetworkSpec(offload=offload), "warm", {})


def test_offloads_are_off_at_a_lossy_link_and_the_ps(
    spec: Callable[..., NodeSpec],
) -> None:
    ps, lossy, clean = spec("ps", 1, role="ps"), spec("w0", 2, down=LOSSY), spec("w1", 3)
    decided = plan(ps, lossy, clean)
    assert [network_for(node, decided).offload for node in (ps, lossy, clean)] == [
        "off",
        "off",
        "on",
    ]
    assert network_for(ps, plan(ps, clean)).offload == "on"


def test_offloads_are_off_with_both_a_rate_and_a_delay(spec: Callable[..., NodeSpec]) -> None:
    ps, far = spec("ps", 1, role="ps"), spec("w0", 2, up=Direction(delay=Duration(0.02)))
    slow = spec("w1", 3, up=Direction(rate=Rate(1e6), delay=Duration(0.02)))
    assert network_for(far, plan(ps, far)).offload == "on"
    assert network_for(slow, plan(ps, slow)).offload == "off"


@pytest.mark.parametrize("offload", ["on", "off"])
def test_the_scenarios_setting_takes_precedence(
    spec: Callable[..., NodeSpec], offload: Offload
) -> None:
    ps, lossy = spec("ps", 1, role="ps"), spec("w0", 2, up=LOSSY)
    assert network_for(lossy, plan(ps, lossy, offload=offload)).offload == offload


@pytest.mark.root
@pytest.mark.parametrize(
    ("offload", "expected"),
    [
        ("auto", Offloads(tso=True, gso=True, gro=False)),
        ("on", Offloads(tso=True, gso=True, gro=False)),
        ("off", Offloads(tso=False, gso=False, gro=False)),
    ],
)
def test_both_ends_are_changed_and_read_back(
    lab: Any, spec: Callable[..., NodeSpec], offload: Offload, expected: Offloads
) -> None:
    lab.network = NetworkSpec(offload=offload)
    link = lab.node(spec("w0", 2)).link
    assert (link.node_offloads, link.port_offloads) == (expected, expected)
