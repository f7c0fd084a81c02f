"""The prober on loopback, and its arithmetic by hand."""

from __future__ import annotations

import socket
import threading

import pytest

from testbed.roles import prober
from testbed.roles.probing import (
    HEADER_BYTES,
    SLICE_SECONDS,
    Arrival,
    FastStream,
    ProbeStream,
    datagrams,
    rate_of,
    rate_of_slices,
)


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
        (50e6, 1472, 0.8),  # full frames, as many as possible
        (1e6, 1472, 0.8),  # 100,000 bytes in 60 packets would be 1,624 each
        (100e3, 124, 0.8),  # 10,000 bytes: 166 each, headers included
        (20e3, 100, 60 * 142 * 8 / 20e3),  # the minimum size, so it takes 3.4 s
    ],
)
def test_slow_links_get_smaller_packets_and_then_more_time(
    rate: float, payload: int, seconds: float
) -> None:
    stream = ProbeStream.through(rate)
    assert stream.payload == payload
    assert stream.seconds == pytest.approx(seconds)


def test_a_stream_fills_the_queue_before_it_waits_for_the_first_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class PausedError(Exception):
        pass

    def pause(_: float) -> None:
        raise PausedError

    monkeypatch.setattr("testbed.roles.probing.time.sleep", pause)
    with datagrams("127.0.0.1") as receiver, datagrams() as sender:
        with pytest.raises(PausedError):
            ProbeStream.through(1e6).send(sender, receiver.getsockname())
        receiver.setblocking(False)
        sizes = []
        with pytest.raises(BlockingIOError):
            while True:
                sizes.append(len(receiver.recv(2048)))
    # A bucket of 1,250 bytes and two frames, a quarter of 0.8 s at 125,000 bytes a second: 29,278
    # bytes are 19 frames of 1,514. The 20th is the first at the stream's own pace.
    assert sizes == [1472] * 20


def steady(number: int, *, batches: int = 50, every: float = 0.001) -> list[Arrival]:
    """Two frames per millisecond from the start of a time slice."""
    begin = number * (SLICE_SECONDS + 1e-6)
    return [Arrival(begin + every * n, 2, 0) for n in range(batches)]


def test_a_fast_rate_is_the_median_of_time_slices() -> None:
    arrivals = [one for n in range(10) for one in steady(n)]
    # Ten slices of 50 ms, of which the first and the last do not count: two frames a millisecond.
    assert rate_of_slices(arrivals) == pytest.approx(2000 * 8 * 1514, rel=1e-6)
    assert rate_of_slices(arrivals[50:]) is None  # seven counted slices are too few
    assert rate_of_slices([]) is None


def test_a_fast_stream_with_gaps_has_no_rate() -> None:
    holes = [one for n in range(12) for one in steady(n, batches=50 - 4 * n)]
    assert rate_of_slices(holes) == pytest.approx(2000 * 8 * 1514, rel=1e-6)  # ends left out
    uneven = [one for n in range(12) for one in steady(n, batches=20, every=1e-3 + n * 5e-5)]
    assert rate_of_slices(uneven) is None


def test_slices_with_a_full_queue_do_not_count() -> None:
    arrivals = [one for n in range(12) for one in steady(n)]
    lossy = [one._replace(dropped=n) for n, one in enumerate(arrivals[50:150])]
    assert rate_of_slices([*arrivals[:50], *lossy, *arrivals[150:]]) is not None
    assert rate_of_slices([one._replace(dropped=n) for n, one in enumerate(arrivals)]) is None


def test_a_fast_stream_arrives_in_batches_of_full_frames() -> None:
    with datagrams("127.0.0.1") as sender, datagrams("127.0.0.1") as receiver:
        found: list[float | None] = []
        stream = FastStream(300e6)
        taking = threading.Thread(target=lambda: found.append(stream.receive(receiver)))
        taking.start()
        stream.send(sender, receiver.getsockname())
        taking.join()
    assert len(found) == 1  # nothing limits loopback but the stream's own pace


def test_a_probe_measures_the_actual_rate(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_datagrams_fill_the_frames_of_the_mtu() -> None:
    """28 bytes of headers in a packet, and 14 more in a frame."""
    assert ProbeStream.through(10e6, mtu=1280).payload == 1252
    assert ProbeStream.through(10e6, mtu=1280).burst_bytes == 12_500 + 2 * 1294
    assert ProbeStream.through(20e3, mtu=9000).payload == 100  # a slow link has small ones
    assert (FastStream(1e9).payload, FastStream(1e9, 9000).payload) == (1472, 8972)
