"""The time model of links in a simulation.

Bytes on a link are those of Ethernet frames: payload, gRPC and TCP headers. A lost packet is sent
again, which costs its bytes again, and one round trip per retry until all have arrived. The latency
is drawn once per message, from the law that the kernel uses for each packet.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil, inf

import numpy as np

from testbed.network.jitter import ENTRIES, SCALE, table
from testbed.network.qdiscs import FRAME_BYTES, TokenBucket, qdisc_for
from testbed.scenario.direction import Link
from testbed.simulation.links import Bucket
from testbed.values.topology import Direction, Distribution, frame_bytes, segment_bytes
from testbed.values.units import Rate

HEADER_BYTES = 66
"""Ethernet, IPv4 and TCP headers with timestamps."""

MESSAGE_BYTES = 200
"""gRPC overhead per message: HTTP/2 frames and headers, the message's own fields."""


@dataclass(frozen=True)
class Hop:
    """One link's latency in one direction: mean, standard deviation and distribution."""

    delay_seconds: float
    jitter_seconds: float
    distribution: Distribution

    def draw(self, rng: np.random.Generator) -> float:
        """Draw the latency of one message, never negative."""
        if not self.jitter_seconds:
            return self.delay_seconds
        deviation = table(self.distribution)[rng.integers(ENTRIES)] / SCALE
        return max(0.0, self.delay_seconds + self.jitter_seconds * deviation)


@dataclass(frozen=True)
class Path:
    """One direction between a worker and the PS.

    Attributes:
        bucket: the token bucket of the worker's own link, as deep as the kernel's.
        hops: latencies of the two links.
        loss_ratio: share of packets lost on either link.
        round_trip_seconds: latency of a round trip.
        segment_bytes: TCP's payload of a full packet.
        frame_bytes: the largest frame of the worker's own link.
    """

    bucket: Bucket
    hops: tuple[Hop, Hop]
    loss_ratio: float
    round_trip_seconds: float
    segment_bytes: int = segment_bytes(None)
    frame_bytes: int = FRAME_BYTES

    def delay(self, rng: np.random.Generator) -> float:
        """Draw the latency of one message, independent of its size."""
        first, second = self.hops
        return first.draw(rng) + second.draw(rng)

    def send(self, payload_bytes: int, rng: np.random.Generator) -> tuple[float, float]:
        """Return a message's bytes on the link, and its delay on top of their time."""
        message = payload_bytes + MESSAGE_BYTES
        packets = ceil(message / self.segment_bytes)
        delay = self.delay(rng)
        wire = float(message + packets * HEADER_BYTES)
        if not self.loss_ratio:
            return wire, delay
        repeated, missing = 0, packets
        while missing:
            missing = int(rng.binomial(missing, self.loss_ratio))
            repeated += missing
            delay += self.round_trip_seconds if missing else 0.0
        return wire * (packets + repeated) / packets, delay


def paths(worker: Link, server: Link, *, time_scale: float = 1.0) -> tuple[Path, Path]:
    """Return the paths up and down between a worker and the PS, each with its own link.

    The depth of the kernel's buckets depends on real time, hence the time scale.
    """
    up = worker.up, server.down
    down = server.up, worker.down
    round_trip = sum(part.delay or 0.0 for part in (*up, *down))
    sizes = segment_bytes(worker.mtu, server.mtu), frame_bytes(worker.mtu)
    return (
        _path(worker.up, up, round_trip, time_scale=time_scale, sizes=sizes),
        _path(worker.down, down, round_trip, time_scale=time_scale, sizes=sizes),
    )


def delayed(
    up: Path, down: Path, up_seconds: float | None, down_seconds: float | None
) -> tuple[Path, Path]:
    """Return the paths with new delays of the worker's own link; None keeps a delay."""
    first, last = up.hops[0], down.hops[1]
    there = first if up_seconds is None else replace(first, delay_seconds=up_seconds)
    back = last if down_seconds is None else replace(last, delay_seconds=down_seconds)
    more = there.delay_seconds - first.delay_seconds + back.delay_seconds - last.delay_seconds
    round_trip = up.round_trip_seconds + more
    return (
        replace(up, hops=(there, up.hops[1]), round_trip_seconds=round_trip),
        replace(down, hops=(down.hops[0], back), round_trip_seconds=round_trip),
    )


def capacity(direction: Direction) -> float:
    """Return the PS link's bytes per second in one direction; infinite if not shaped."""
    return inf if direction.rate is None else direction.rate.bytes_per_second


def burst_bytes(rate: Rate, time_scale: float, frame: int = FRAME_BYTES) -> int:
    """Return the depth that the kernel gives the bucket of an emulated rate."""
    shape = Direction(rate=Rate(rate * time_scale))
    qdisc = qdisc_for(shape, rtt=0.0, frame_bytes=frame)
    assert isinstance(qdisc, TokenBucket)
    return qdisc.burst_bytes


def _path(
    own: Direction,
    hops: tuple[Direction, Direction],
    round_trip: float,
    *,
    time_scale: float,
    sizes: tuple[int, int],
) -> Path:
    arrived = 1.0
    for hop in hops:
        arrived *= 1.0 - (hop.loss or 0.0)
    first, second = (
        Hop(hop.delay or 0.0, hop.jitter or 0.0, hop.distribution or "normal") for hop in hops
    )
    segment, frame = sizes
    return Path(
        _bucket(own, time_scale, frame),
        hops=(first, second),
        loss_ratio=1.0 - arrived,
        round_trip_seconds=round_trip,
        segment_bytes=segment,
        frame_bytes=frame,
    )


def _bucket(own: Direction, time_scale: float, frame: int) -> Bucket:
    if own.rate is None:
        return Bucket(inf, 0)
    return Bucket(own.rate.bytes_per_second, burst_bytes(own.rate, time_scale, frame))
