"""Rates measured by the prober on links from 16 kbit, compared with iperf3 and the qdiscs."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from shutil import which
from typing import Any

import pytest

from testbed.values.topology import Direction
from testbed.values.units import Rate

pytestmark = [pytest.mark.root, pytest.mark.slow, pytest.mark.alone]

RATES = ("16kbit", "128kbit", "256kbit", "400kbit", "10mbit")
PROBER = "from testbed.roles.prober import main; import sys, json; main(json.loads(sys.argv[1]))"
SERVER = "10.77.0.1"
FAST = ("300mbit", "1gbit")
IPERF_SECONDS = 10
FAST_SECONDS = 3
PATIENCE_SECONDS = 90.0
PORTS = range(5201, 5201 + len(RATES))
PAYLOAD_BYTES, FRAME_BYTES = 400, 442
SEGMENT_BYTES, SEGMENT_FRAME_BYTES = 1448, 1514


@pytest.fixture
def start() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts a command in the network namespace of a process; ends it after the test."""
    started: list[subprocess.Popen[str]] = []

    def start(pid: int, *command: str) -> subprocess.Popen[str]:
        entered = ["nsenter", f"--net=/proc/{pid}/ns/net", *command]
        started.append(subprocess.Popen(entered, stdout=subprocess.PIPE, text=True))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


def prober(server: str, rate: str = "") -> tuple[str, ...]:
    """The command that probes both directions of a link, or reflects if there is no server."""
    bits = repr(float(Rate.parse(rate))) if rate else ""
    arguments = json.dumps({"server": server, "up": bits, "down": bits})
    return (sys.executable, "-c", PROBER, arguments)


def iperf(rate: str, port: int) -> tuple[str, ...]:
    """The command that sends datagrams up a link at 1.5 times its rate."""
    offered = str(int(1.5 * float(Rate.parse(rate))))
    options = ("-u", "-b", offered, "-l", str(PAYLOAD_BYTES), "-t", str(IPERF_SECONDS), "-J")
    return ("iperf3", "-c", SERVER, "-p", str(port), *options)


def output(process: subprocess.Popen[str]) -> Any:
    """The output of a command, as JSON."""
    return json.loads(process.communicate(timeout=PATIENCE_SECONDS)[0])


def wait_until_listening(pid: int, ports: Iterable[int]) -> None:
    """Wait for a listener on these ports, in the network namespace of a process."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    wanted = {f"{port:04X}" for port in ports}
    while wanted:
        assert time.monotonic() < deadline, f"no process listens on {sorted(wanted)}"
        rows = [
            line.split()
            for family in ("tcp", "tcp6")
            for line in Path(f"/proc/{pid}/net/{family}").read_text().splitlines()
        ]
        wanted -= {row[1].rpartition(":")[2] for row in rows if row[3] == "0A"}


@pytest.fixture(params=[RATES])
def links(lab: Any, spec: Any, request: pytest.FixtureRequest) -> Any:
    """The PS, and a worker behind a link of each rate."""
    shapes = {text: Direction(rate=Rate.parse(text)) for text in request.param}
    workers = {
        text: spec(f"w{number}", number + 2, up=shape, down=shape)
        for number, (text, shape) in enumerate(shapes.items())
    }
    ps = spec("ps", 1, role="ps")
    server = lab.node(ps, *workers.values())
    return server, {text: lab.node(worker, ps) for text, worker in workers.items()}


@pytest.mark.skipif(which("iperf3") is None, reason="needs iperf3")
def test_slow_and_fast_links_are_read_within_two_percent(links: Any, start: Any) -> None:
    server, workers = links
    start(server.peer.pid, *prober(server=""))
    probers = {rate: start(node.peer.pid, *prober(SERVER, rate)) for rate, node in workers.items()}
    found = {rate: output(one) for rate, one in probers.items()}
    servers = [
        start(server.peer.pid, "iperf3", "-s", "-1", "-J", "-p", str(port)) for port in PORTS
    ]
    wait_until_listening(server.peer.pid, PORTS)
    clients = [
        start(node.peer.pid, *iperf(rate, port))
        for port, (rate, node) in zip(PORTS, workers.items(), strict=True)
    ]
    for client in clients:
        assert "error" not in output(client)
    for rate, iperf_server in zip(RATES, servers, strict=True):
        # Its own count of seconds starts with the first datagram of a full bucket.
        received = output(iperf_server)["intervals"][2:-1]
        bits = sum(one["sum"]["bytes"] for one in received) * 8 * FRAME_BYTES / PAYLOAD_BYTES
        by_iperf = bits / sum(one["sum"]["seconds"] for one in received)
        up, down = found[rate]["up_bits_per_second"], found[rate]["down_bits_per_second"]
        print(f"{rate}: probed {up:.0f} up, {down:.0f} down; iperf3 {by_iperf:.0f}")
        assert up == pytest.approx(float(Rate.parse(rate)), rel=0.02)
        assert down == pytest.approx(float(Rate.parse(rate)), rel=0.02)
        assert by_iperf == pytest.approx(up, rel=0.02)


@pytest.mark.skipif(which("iperf3") is None, reason="needs iperf3")
@pytest.mark.parametrize("links", [FAST], indirect=True)
def test_links_up_to_a_gigabit_are_read_within_two_percent(links: Any, start: Any) -> None:
    """One after the other: two processors cannot carry them at once."""
    server, workers = links
    start(server.peer.pid, *prober(server=""))
    for port, (rate, node) in zip(PORTS, workers.items(), strict=False):
        found = output(start(node.peer.pid, *prober(SERVER, rate)))
        iperf_server = start(server.peer.pid, "iperf3", "-s", "-1", "-J", "-p", str(port))
        wait_until_listening(server.peer.pid, [port])
        options = ("-c", SERVER, "-p", str(port), "-t", str(FAST_SECONDS), "-J")
        assert "error" not in output(start(node.peer.pid, "iperf3", *options))
        received = output(iperf_server)["intervals"][1:-1]  # without the full bucket
        bits = sum(one["sum"]["bytes"] for one in received) * 8
        bits *= SEGMENT_FRAME_BYTES / SEGMENT_BYTES
        by_iperf = bits / sum(one["sum"]["seconds"] for one in received)
        up, down = found["up_bits_per_second"], found["down_bits_per_second"]
        print(f"{rate}: probed {up} up, {down} down; iperf3 {by_iperf:.0f}")
        if up is None or down is None:
            pytest.skip("the host is too busy to send that fast, and the probe says so")
        assert up == pytest.approx(float(Rate.parse(rate)), rel=0.02)
        assert down == pytest.approx(float(Rate.parse(rate)), rel=0.02)
        assert by_iperf == pytest.approx(up, rel=0.02)


def test_the_default_queue_of_a_slow_link_is_long_enough_for_tcp(lab: Any) -> None:
    """With only two frames, which is 100 ms here, a fifth or far more would be sent again."""
    slow = Direction(rate=Rate.parse("128kbit"))
    _, worker = lab.pair(up=slow, down=slow)
    assert worker.peer.tell("exchange 100000 1000 1") == "done"
    text = Path(f"/proc/{worker.peer.pid}/net/snmp").read_text()
    names, values = (line.split() for line in text.splitlines() if line.startswith("Tcp:"))
    tcp = dict(zip(names, values, strict=True))
    again = int(tcp["RetransSegs"]) / int(tcp["OutSegs"])
    print(f"{again:.1%} of {tcp['OutSegs']} segments sent again")
    assert again <= 0.1
