"""Measured rates: Ethernet bytes by the qdisc's own counters, medians of five."""

from __future__ import annotations

import time
from statistics import median
from typing import Any

import pytest

from testbed.network.interfaces import Interface, sockets
from testbed.values.topology import Direction
from testbed.values.units import Rate

pytestmark = [pytest.mark.root, pytest.mark.slow, pytest.mark.alone]

RUNS = 5


def wait_until_busy(lab: Any, end: Interface, rate: Rate) -> None:
    """A fifth of a second's worth has passed: the bucket is empty and the queue is not."""
    while lab.counted(end).bytes < rate.bytes_per_second / 5:
        time.sleep(0.01)


@pytest.mark.parametrize(("text", "seconds"), [("1mbit", 1.0), ("10mbit", 0.5), ("100mbit", 0.3)])
def test_both_directions_run_at_their_rate(
    lab: Any, text: str, seconds: float, record_property: Any
) -> None:
    rate = Rate.parse(text)
    _, worker = lab.pair(up=Direction(rate=rate), down=Direction(rate=rate))
    with sockets() as here, sockets(worker.peer.pid) as there:
        ends = {"flood": there.interface("eth0"), "drain": here.interface("w0")}
        for command, end in ends.items():
            worker.peer.tell(f"{command} {RUNS * seconds + 2}")
            wait_until_busy(lab, end, rate)
            found = median(lab.rate_through(end, seconds) for _ in range(RUNS))
            record_property(f"{text} {command}", f"{found / 1e6:.3f}")
            print(f"{text} {command}: {found / 1e6:.3f} mbit")
            assert found == pytest.approx(float(rate), rel=0.05)
            worker.peer.tell("close")
            worker.peer.tell("connect 10.77.0.1 5000")
