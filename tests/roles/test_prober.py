"""The prober on loopback, and its arithmetic by hand."""

from __future__ import annotations

import socket
import threading

import pytest

from testbed.roles import prober
from testbed.roles.probing import HEADER_BYTES, ProbeStream, rate_of


def test_the_rate_counts_from_the_first_packet_after_the_burst() -> None:
    size = 1000 - HEADER_BYTES
    # Two frames at once, then one every 10 ms: 1000 bytes each, 100 a second, 800 kbit.
    arrivals = [(0.0, size), (0.0, size), *((0.01 * n, size) for n in range(1, 11))]
    assert rate_of(arrivals, burst_bytes=1500) == pytest.approx(800_000)
    assert rate_of(arrivals, burst_bytes=0) > 800_000
    assert rate_of(arrivals, burst_bytes=50_000) is None
    assert rate_of([], burst_bytes=0) is None


@pytest.mark.parametrize(
    ("rate", "payload", "seconds"),
    [
        (50e6, 1472, 0.8),  # full frames, as many as there are
        (1e6, 1472, 0.8),  # 100,000 bytes in 60 packets would be 1,624 each
        (100e3, 124, 0.8),  # 10,000 bytes: 166 each, headers included
        (20e3, 100, 60 * 142 * 8 / 20e3),  # no smaller ones, so it takes 3.4 s
    ],
)
def test_slow_links_get_smaller_packets_then_more_time(
    rate: float, payload: int, seconds: float
) -> None:
    stream = ProbeStream.through(rate)
    assert stream.payload == payload
    assert stream.seconds == pytest.approx(seconds)


def test_a_probe_measures_what_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        monkeypatch.setattr(prober, "PORT", free.getsockname()[1])
    threading.Thread(target=prober.reflect, args=("127.0.0.1",), daemon=True).start()
    found = prober.probe("127.0.0.1", up=2e6, down=None)
    assert found["round_trips"] == prober.TRIPS
    assert found["round_trip_seconds"] < 1
    assert found["message_up_seconds"] > 0
    assert found["message_down_seconds"] > 0
    assert found["up_bits_per_second"] > 0
    assert found["down_bits_per_second"] is None
