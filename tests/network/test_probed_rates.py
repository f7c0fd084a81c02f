"""What the prober says of links from 16 kbit on, beside iperf3 and the qdisc's own counters."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from shutil import which
from typing import Any

import pytest

from testbed.topology import Shape
from testbed.values.units import Duration, Rate

pytestmark = [pytest.mark.root, pytest.mark.slow]

RATES = ("16kbit", "128kbit", "256kbit", "400kbit", "10mbit")
PROBER = "from testbed.roles.prober import main; import sys, json; main(json.loads(sys.argv[1]))"
SERVER = "10.77.0.1"
IPERF_SECONDS = 10
PAYLOAD_BYTES, FRAME_BYTES = 400, 442


def start(pid: int, *command: str) -> subprocess.Popen[str]:
    """A command in the network namespace of a process."""
    return subprocess.Popen(
        ["nsenter", f"--net=/proc/{pid}/ns/net", *command], stdout=subprocess.PIPE, text=True
    )


def probe(pid: int, rate: str, *, server: str) -> subprocess.Popen[str]:
    bits = repr(float(Rate.parse(rate)))
    up_and_down = {"up": bits, "down": bits} if server else {"up": "", "down": ""}
    arguments = json.dumps({"server": server, **up_and_down})
    return start(pid, sys.executable, "-c", PROBER, arguments)


def iperf(pid: int, rate: str, port: int) -> subprocess.Popen[str]:
    """Datagrams up the link, half as fast again as it is."""
    offered = str(int(1.5 * float(Rate.parse(rate))))
    options = ["-u", "-b", offered, "-l", str(PAYLOAD_BYTES), "-t", str(IPERF_SECONDS), "-J"]
    return start(pid, "iperf3", "-c", SERVER, "-p", str(port), *options)


@pytest.fixture
def links(lab: Any, spec: Any) -> Any:
    """The PS, and a worker behind a link of each rate."""
    shapes = {text: Shape(rate=Rate.parse(text)) for text in RATES}
    workers = {
        text: spec(f"w{number}", number + 2, up=shape, down=shape)
        for number, (text, shape) in enumerate(shapes.items())
    }
    ps = spec("ps", 1, role="ps")
    server = lab.node(ps, *workers.values())
    return server, {text: lab.node(worker, ps) for text, worker in workers.items()}


@pytest.mark.skipif(which("iperf3") is None, reason="needs iperf3")
def test_slow_and_fast_links_are_read_within_two_percent(links: Any) -> None:
    server, workers = links
    reflector = probe(server.peer.pid, RATES[0], server="")
    try:
        probers = {
            rate: probe(node.peer.pid, rate, server=SERVER) for rate, node in workers.items()
        }
        found = {rate: json.loads(one.communicate()[0]) for rate, one in probers.items()}
    finally:
        reflector.kill()
        reflector.communicate()
    servers = [
        start(server.peer.pid, "iperf3", "-s", "-1", "-J", "-p", str(5201 + number))
        for number in range(len(RATES))
    ]
    clients = [
        iperf(node.peer.pid, rate, 5201 + number)
        for number, (rate, node) in enumerate(workers.items())
    ]
    for client in clients:
        client.communicate()
    for rate, iperf_server in zip(RATES, servers, strict=True):
        # Its own count of seconds begins with the first datagram of a full bucket.
        received = json.loads(iperf_server.communicate()[0])["intervals"][2:-1]
        bits = sum(one["sum"]["bytes"] for one in received) * 8 * FRAME_BYTES / PAYLOAD_BYTES
        by_iperf = bits / sum(one["sum"]["seconds"] for one in received)
        up, down = found[rate]["up_bits_per_second"], found[rate]["down_bits_per_second"]
        print(f"{rate}: probed {up:.0f} up, {down:.0f} down; iperf3 {by_iperf:.0f}")
        assert up == pytest.approx(float(Rate.parse(rate)), rel=0.02)
        assert down == pytest.approx(float(Rate.parse(rate)), rel=0.02)
        assert by_iperf == pytest.approx(up, rel=0.02)


@pytest.mark.parametrize(
    ("queue", "least", "most"),
    [(None, 0.0, 0.08), ("190ms", 0.12, 10.0)],  # 190 ms at 128 kbit are two frames
)
def test_the_default_queue_of_a_slow_link_is_long_enough_for_tcp(
    lab: Any, queue: str | None, least: float, most: float
) -> None:
    rate = Rate.parse("128kbit")
    slow = Shape(rate=rate, queue=None if queue is None else Duration.parse(queue))
    _, worker = lab.pair(up=slow, down=slow)
    assert worker.peer.tell("exchange 100000 1000 1") == "done"
    text = Path(f"/proc/{worker.peer.pid}/net/snmp").read_text()
    names, values = (line.split() for line in text.splitlines() if line.startswith("Tcp:"))
    tcp = dict(zip(names, values, strict=True))
    again = int(tcp["RetransSegs"]) / int(tcp["OutSegs"])
    print(f"queue {queue}: {again:.1%} of {tcp['OutSegs']} segments sent again")
    assert least <= again <= most
