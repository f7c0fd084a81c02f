from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from testbed.network.counters import Ledger, Traffic, TrafficMeter, read_interface
from testbed.network.sock_diag import SocketDiagnosis, TcpCounters, TcpSocket
from testbed.values.topology import Direction
from testbed.values.units import Duration, Rate


@pytest.fixture
def meter() -> Iterator[TrafficMeter]:
    """A meter, released at the end."""
    meter = TrafficMeter()
    yield meter
    for name in ("ps", "w0"):
        meter.release(name)
    meter.read()


def connection(cookie: int, received_bytes: int) -> TcpSocket:
    return TcpSocket(cookie, TcpCounters(received_bytes=received_bytes))


def test_the_counters_of_sockets_add_up() -> None:
    ledger = Ledger()
    assert ledger.total() == TcpCounters(0, 0, 0, 0, 0)
    one, other = TcpCounters(1, 2, 3, 4, 5), TcpCounters(10, 20, 30, 40, 50)
    assert ledger.count([TcpSocket(1, one), TcpSocket(2, other)]) == TcpCounters(11, 22, 33, 44, 55)


def test_a_closed_sockets_bytes_stay_counted() -> None:
    ledger = Ledger()
    assert ledger.count([connection(1, 100), connection(2, 50)]).received_bytes == 150
    assert ledger.count([connection(2, 70)]).received_bytes == 170
    assert ledger.count([connection(2, 70), connection(3, 5)]).received_bytes == 175


def test_final_counters_replace_the_last_reading() -> None:
    ledger = Ledger()
    ledger.count([connection(1, 100), connection(2, 50)])
    assert ledger.count([connection(2, 70)], [connection(1, 130)]).received_bytes == 70 + 130
    # One that opened and closed between two readings, and one that ended during a reading.
    total = ledger.count([connection(2, 75)], [connection(2, 80), connection(3, 5)])
    assert total.received_bytes == 130 + 80 + 5
    assert ledger.count([]).received_bytes == 215


def test_a_socket_missed_by_one_reading_is_not_counted_twice() -> None:
    ledger = Ledger()
    ledger.count([connection(1, 100)])
    ledger.count([])
    assert ledger.count([connection(1, 120)]).received_bytes == 120


@pytest.mark.root
def test_a_missing_interface_is_named(new_peer: Any) -> None:
    with pytest.raises(KeyError, match="eth0"):  # it has only the loopback
        read_interface(new_peer().pid)


@pytest.mark.root
@pytest.mark.alone
def test_a_meter_reads_both_ends_of_an_exchange(lab: Any, meter: TrafficMeter) -> None:
    ps, worker = lab.pair()
    meter.watch("ps", pid=ps.peer.pid, part="server")
    meter.watch("w0", pid=worker.peer.pid, part="client")
    assert worker.peer.tell("exchange 17000 100000 3") == "done"
    traffic = meter.read()
    assert traffic.sockets == 1
    assert traffic.tcp_received_bytes == 3 * (17_000 + 24)
    assert traffic.tcp_acked_bytes <= 300_000 + 1  # the last acknowledgement may be in transit
    assert traffic.wire_rx_bytes > traffic.tcp_received_bytes
    assert traffic.retransmitted_in_bytes == {"w0": 0}


@pytest.mark.root
@pytest.mark.alone
def test_totals_outlive_connections_and_nodes(lab: Any, meter: TrafficMeter) -> None:
    ps, worker = lab.pair()
    meter.watch("ps", pid=ps.peer.pid, part="server")
    meter.watch("w0", pid=worker.peer.pid, part="client")
    worker.peer.tell("exchange 5000 5000 1")
    before = meter.read()
    worker.peer.tell("close")
    worker.peer.process.kill()
    worker.peer.process.wait()
    meter.release("w0")
    after = meter.read()
    assert before.tcp_received_bytes == 5024
    assert after.tcp_received_bytes - 5024 in (0, 1)  # the end of a stream may count as a byte
    assert after.wire_rx_bytes >= before.wire_rx_bytes
    ps.peer.process.kill()
    ps.peer.process.wait()
    gone = meter.read()
    assert (gone.tcp_received_bytes, gone.sockets) == (after.tcp_received_bytes, 0)
    assert gone.wire_rx_bytes == after.wire_rx_bytes
    assert gone.retransmitted_in_bytes == {"w0": 0}


@pytest.mark.root
@pytest.mark.alone
def test_a_workers_repeated_pushes_are_counted_under_its_name(
    lab: Any, meter: TrafficMeter
) -> None:
    narrow = Direction(rate=Rate.parse("1mbit"), queue=Duration.parse("40ms"))  # three frames
    ps, worker = lab.pair(up=narrow)
    meter.watch("ps", pid=ps.peer.pid, part="server")
    meter.watch("w0", pid=worker.peer.pid, part="client")
    worker.peer.tell("exchange 17000 10 2")
    traffic = meter.read()
    assert 0 < traffic.retransmitted_in_bytes["w0"] < 34_000
    assert traffic.retransmitted_out_bytes == 0


@pytest.mark.root
@pytest.mark.alone
def test_a_restarted_node_adds_to_its_earlier_counts(lab: Any, meter: TrafficMeter) -> None:
    ps, worker = lab.pair()
    worker.peer.tell("exchange 5000 5000 1")
    meter.watch("ps", pid=ps.peer.pid, part="server")
    before = meter.read().wire_rx_bytes
    meter.watch("ps", pid=worker.peer.pid, part="server")  # as if it were the restarted PS
    second = read_interface(worker.peer.pid).rx_bytes
    assert meter.read().wire_rx_bytes == before + second


@pytest.mark.root
@pytest.mark.alone
def test_a_node_restarted_on_its_link_is_counted_once(lab: Any, meter: TrafficMeter) -> None:
    ps, worker = lab.pair()
    meter.watch("ps", pid=ps.peer.pid, part="server")
    worker.peer.tell("exchange 5000 5000 1")
    assert meter.read().wire_rx_bytes > 5000
    meter.watch("ps", pid=ps.peer.pid, part="server", attached=False)
    before = read_interface(ps.peer.pid).rx_bytes
    counted = meter.read().wire_rx_bytes
    assert before <= counted <= read_interface(ps.peer.pid).rx_bytes


def read_to_the_end(meter: TrafficMeter, expected_bytes: int) -> Traffic:
    """Read until all bytes are counted: the kernel reports the end of a socket a bit later."""
    deadline = time.monotonic() + 20
    while (traffic := meter.read()).tcp_received_bytes < expected_bytes:
        assert time.monotonic() < deadline, traffic
    return traffic


@pytest.mark.root
@pytest.mark.alone
def test_connections_between_two_readings_are_counted(lab: Any, meter: TrafficMeter) -> None:
    narrow = Direction(rate=Rate.parse("1mbit"), queue=Duration.parse("40ms"))  # three frames
    ps, worker = lab.pair(up=narrow)
    meter.watch("ps", pid=ps.peer.pid, part="server")
    meter.watch("w0", pid=worker.peer.pid, part="client")
    worker.peer.tell("exchange 17000 10 1")
    worker.peer.tell("close")
    assert ps.peer.tell("over") == str(17_000 + 24)
    traffic = read_to_the_end(meter, 17_024)
    assert traffic.tcp_received_bytes - 17_024 in (0, 1)  # the end of a stream may count as a byte
    assert 0 < traffic.retransmitted_in_bytes["w0"] < 34_000


@pytest.mark.root
@pytest.mark.alone
def test_bytes_of_a_worker_killed_during_a_push_are_counted(lab: Any, meter: TrafficMeter) -> None:
    ps, worker = lab.pair(up=Direction(rate=Rate.parse("20mbit")))
    meter.watch("ps", pid=ps.peer.pid, part="server")
    worker.peer.tell("flood 60")
    while (before := meter.read().tcp_received_bytes) < 100_000:
        pass
    worker.peer.process.kill()
    worker.peer.process.wait()
    received = int(ps.peer.tell("over"))  # sent bytes are still in transit
    assert received > before
    assert read_to_the_end(meter, received).tcp_received_bytes - received in (0, 1)


@pytest.mark.root
@pytest.mark.alone
def test_connections_within_a_node_do_not_count_for_its_link(lab: Any) -> None:
    ps, _ = lab.pair()
    with closing(SocketDiagnosis(ps.peer.pid)) as sockets:
        assert len(sockets.connected()) == 1
        ps.peer.tell("connect 127.0.0.1 5000")
        ps.peer.tell("exchange 10 10 1")
        assert len(sockets.connected()) == 1
        ps.peer.tell("close")
        assert sockets.ended() == []


def test_reading_a_process_that_has_ended() -> None:
    process = subprocess.Popen([sys.executable, "-SEc", ""])
    process.wait()
    with pytest.raises((FileNotFoundError, PermissionError)):
        SocketDiagnosis(process.pid)
