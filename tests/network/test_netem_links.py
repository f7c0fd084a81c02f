"""Measured delay, jitter, loss, rate and queue together, where the kernel has netem.

Medians, measured under UML (6.1, one CPU): 30 + 20 ms gave 51.0, 40 + 0 gave 40.5, 0 + 25 gave
25.5; 1 and 10 mbit behind a delay as 0.9999 and 9.997, in both directions.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from math import sqrt
from statistics import median, quantiles
from typing import Any

import pytest

from testbed.network import tc
from testbed.network.interfaces import sockets
from testbed.network.jitter import SCALE, table
from testbed.network.offloads import Offloads
from testbed.network.qdiscs import Netem
from testbed.values.topology import Direction, Distribution, NodeSpec
from testbed.values.units import Duration, Rate

pytestmark = [pytest.mark.root, pytest.mark.netem, pytest.mark.alone]

MILLISECOND = 1e-3


def pair(
    lab: Any, spec: Callable[..., NodeSpec], *, up: Direction, down: Direction
) -> tuple[Any, Any]:
    """A PS that echoes datagrams, and a worker."""
    ps, worker = spec("ps", 1, role="ps"), spec("w0", 2, up=up, down=down)
    server, client = lab.node(ps, worker), lab.node(worker, ps)
    assert client.link.differences() == []
    server.peer.tell("reflect 7")
    client.peer.tell("ping 10.77.0.1 7 3")
    return server, client


def trips(client: Any, count: int, *, patience: float = 2.0) -> list[float]:
    """Round-trip times of the datagrams that returned, in milliseconds."""
    return [float(t) for t in client.peer.tell(f"ping 10.77.0.1 7 {count} {patience}").split()]


@pytest.mark.parametrize(("up", "down"), [(30, 20), (40, 0), (0, 40)])
def test_delays_add_up(lab: Any, spec: Callable[..., NodeSpec], up: int, down: int) -> None:
    rate = Rate.parse("10mbit")
    shapes = [Direction(rate=rate, delay=Duration(d * MILLISECOND)) for d in (up, down)]
    _, client = pair(lab, spec, up=shapes[0], down=shapes[1])
    found = median(trips(client, 15))
    print(f"{up} + {down} ms: {found:.2f} ms")
    assert found == pytest.approx(up + down, rel=0.05)


@pytest.mark.parametrize("law", ["normal", "uniform", "pareto", "paretonormal"])
def test_jitter_is_a_standard_deviation(
    lab: Any, spec: Callable[..., NodeSpec], law: Distribution
) -> None:
    up = Direction(delay=Duration(0.03), jitter=Duration(0.005), distribution=law)
    _, client = pair(lab, spec, up=up, down=Direction())
    found = quartiles(trips(client, 200))
    expected = [30 + 5 * deviation for deviation in quartiles([e / SCALE for e in table(law)])]
    print(f"{law}: quartiles {found}, expected {expected}")
    # Quartiles instead of the deviation, which a single hiccup of the machine would dominate.
    assert found[1] == pytest.approx(expected[1], abs=0.05 * 30 + 1)
    assert found[2] - found[0] == pytest.approx(expected[2] - expected[0], rel=0.35)


def quartiles(values: list[float]) -> list[float]:
    """The three quartiles."""
    return [round(value, 2) for value in quantiles(values, n=4)]


@pytest.mark.parametrize("direction", ["up", "down"])
@pytest.mark.parametrize("correlation", [None, 0.25])
def test_losses_match_the_configured_ratio(
    lab: Any, spec: Callable[..., NodeSpec], direction: str, correlation: float | None
) -> None:
    lossy = Direction(loss=0.1, loss_correlation=correlation)
    _, client = pair(lab, spec, **{"up": Direction(), "down": Direction(), direction: lossy})
    off = Offloads(tso=False, gso=False, gro=False)
    assert (client.link.node_offloads, client.link.port_offloads) == (off, off)
    count = 800
    lost = count - len(trips(client, count, patience=0.03))
    stretch = (1 + (correlation or 0)) / (1 - (correlation or 0))
    print(f"{direction}, correlation {correlation}: {lost} of {count} lost")
    assert lost == pytest.approx(count * 0.1, abs=4 * sqrt(count * 0.09 * stretch))


@pytest.mark.parametrize(("text", "seconds"), [("1mbit", 1.0), ("10mbit", 0.5)])
def test_both_directions_run_at_their_rate_behind_a_delay(
    lab: Any, text: str, seconds: float
) -> None:
    rate = Rate.parse(text)
    shape = Direction(rate=rate, delay=Duration(0.02), queue=Duration(0.3))
    _, worker = lab.pair(up=shape, down=shape)
    with sockets() as here, sockets(worker.peer.pid) as there:
        for command, end in {
            "flood": there.interface("eth0"),
            "drain": here.interface("w0"),
        }.items():
            worker.peer.tell(f"{command} {5 * seconds + 3}")
            while lab.counted(end).bytes < rate.bytes_per_second / 2:
                time.sleep(0.01)
            found = median(lab.rate_through(end, seconds) for _ in range(5))
            print(f"{text} {command}: {found / 1e6:.4f} mbit")
            assert found == pytest.approx(float(rate), rel=0.05)
            worker.peer.tell("close")
            worker.peer.tell("connect 10.77.0.1 5000")


def test_a_queue_of_full_frames_has_the_configured_delay(
    lab: Any, spec: Callable[..., NodeSpec]
) -> None:
    up = Direction(rate=Rate.parse("2mbit"), delay=Duration(0.02), queue=Duration(0.2))
    server, worker = pair(lab, spec, up=up, down=Direction())
    server.peer.tell("serve 5000")
    worker.peer.tell("connect 10.77.0.1 5000")
    worker.peer.tell("flood 8")
    time.sleep(2)  # the flood has filled the queue at least once
    found = trips(worker, 20)
    print(f"20 ms and a queue of 200 ms: {median(found):.0f} ms, at most {max(found):.0f} ms")
    assert max(found) < 1.05 * 220 + 10
    assert max(found) > 0.7 * 220


def test_acknowledgements_of_a_long_fat_download_all_fit(
    lab: Any, spec: Callable[..., NodeSpec]
) -> None:
    up = Direction(rate=Rate.parse("1mbit"), delay=Duration(0.15), queue=Duration(0.1))
    down = Direction(rate=Rate.parse("16mbit"), delay=Duration(0.15), queue=Duration(0.6))
    _, worker = lab.pair(up=up, down=down)
    with sockets(worker.peer.pid) as there:
        end = there.interface("eth0")
        assert isinstance(tc.read_back(end.rtnetlink, end.index), Netem)
        worker.peer.tell("exchange 1000 3000000 1")
        counters = lab.counted(end)
    print(f"{counters.packets} acknowledgements, {counters.drops} dropped")
    assert counters.packets > 500
    assert counters.drops == 0
