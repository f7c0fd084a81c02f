"""The bytes on the wire, the bytes of TCP and the sent bytes must be consistent."""

from __future__ import annotations

import time
from typing import Any

import pytest

from testbed.network.counters import Traffic, TrafficMeter
from testbed.values.topology import Direction, NetworkSpec, Offload
from testbed.values.units import Duration, Rate

pytestmark = [pytest.mark.root, pytest.mark.alone]

HEADER_BYTES = 14 + 20 + 32
"""Ethernet, IPv4 and TCP with timestamps, in front of every packet's payload."""

PUSH_BYTES, PULL_BYTES, REQUEST_BYTES = 17_000, 847_000, 24
TIMES = 5


def settled(meter: TrafficMeter) -> Traffic:
    """A reading with nothing left in transit."""
    traffic = meter.read()
    while True:
        time.sleep(0.05)
        again = meter.read()
        if again == traffic:
            return again
        traffic = again


def exchanged(lab: Any, up: str | None, down: str | None) -> tuple[Traffic, Traffic]:
    """The counters before and after some exchanges of an update and a model."""
    shapes = [Direction(rate=Rate.parse(text)) if text else Direction() for text in (up, down)]
    return exchanged_through(lab, *shapes)


def exchanged_through(lab: Any, up: Direction, down: Direction) -> tuple[Traffic, Traffic]:
    ps, worker = lab.pair(up=up, down=down)
    meter = TrafficMeter()
    meter.watch("ps", pid=ps.peer.pid, part="server")
    meter.watch("w0", pid=worker.peer.pid, part="client")
    worker.peer.tell("exchange 10 10 1")
    before = settled(meter)
    worker.peer.tell(f"exchange {PUSH_BYTES} {PULL_BYTES} {TIMES}")
    after = settled(meter)
    for name in ("ps", "w0"):
        meter.release(name)
    meter.read()  # the last reading of released nodes
    return before, after


def check_wire(before: Traffic, after: Traffic) -> None:
    """Data, headers and options are all bytes on the wire, but what arrived twice.

    Packets, not segments, have headers: where segmentation offload handed over 64 KB as one packet,
    the wire counted one header for 45 segments.
    """
    again = after.retransmitted_in_bytes["w0"] - before.retransmitted_in_bytes["w0"]
    names = ("tcp_received_bytes", "wire_rx_packets", "tcp_options_in_bytes", "wire_rx_bytes")
    data, packets, options, wire = (getattr(after, n) - getattr(before, n) for n in names)
    assert 0 <= wire - (data + HEADER_BYTES * packets + options) <= again


@pytest.mark.parametrize(
    ("up", "down", "offload"),
    [
        (None, None, "auto"),
        (None, None, "off"),
        ("10mbit", "100mbit", "auto"),
        ("10mbit", "100mbit", "off"),
        ("100mbit", "10mbit", "auto"),
    ],
)
def test_payload_and_headers_add_up_to_the_wire_bytes(
    lab: Any, up: str | None, down: str | None, offload: Offload
) -> None:
    lab.network = NetworkSpec(offload=offload)
    before, after = exchanged(lab, up, down)
    received = after.tcp_received_bytes - before.tcp_received_bytes
    assert received == TIMES * (PUSH_BYTES + REQUEST_BYTES)
    assert after.tcp_acked_bytes - before.tcp_acked_bytes == TIMES * PULL_BYTES
    check_wire(before, after)


def test_segments_match_where_every_segment_is_a_packet(lab: Any) -> None:
    before, after = exchanged(lab, "10mbit", "100mbit")
    segments = after.tcp_segments_in - before.tcp_segments_in
    received = after.tcp_received_bytes - before.tcp_received_bytes
    wire = after.wire_rx_bytes - before.wire_rx_bytes
    assert received + HEADER_BYTES * segments == pytest.approx(wire, rel=0.01)
    assert segments >= after.wire_rx_packets - before.wire_rx_packets


def test_the_default_queue_causes_few_retransmissions(lab: Any) -> None:
    before, after = exchanged(lab, "10mbit", "10mbit")
    again = after.retransmitted_out_bytes - before.retransmitted_out_bytes
    assert again < 0.05 * TIMES * PULL_BYTES


def test_longer_acknowledgements_of_lost_models_are_counted(lab: Any) -> None:
    """Without them, more than 0.5 % of the bytes would be unexplained."""
    shallow = Direction(rate=Rate.parse("8mbit"), queue=Duration.parse("20ms"))
    before, after = exchanged_through(lab, Direction(), shallow)
    assert after.retransmitted_out_bytes > before.retransmitted_out_bytes
    options = after.tcp_options_in_bytes - before.tcp_options_in_bytes
    assert options > 0.005 * (after.wire_rx_bytes - before.wire_rx_bytes)
    check_wire(before, after)
