"""The modelled seconds: what a link and a device cost in a simulation.

Bytes on a link are those of Ethernet frames: payload, gRPC's and TCP's headers. A lost packet is
sent again, which takes its bytes once more and one round trip until all have arrived.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, inf

import numpy as np

from testbed.scenario.schema import Direction, Link

SEGMENT_BYTES = 1448
"""TCP payload of a full Ethernet frame with time stamps."""

HEADER_BYTES = 66
"""Ethernet, IPv4 and TCP with time stamps."""

MESSAGE_BYTES = 200
"""What gRPC adds to a message: HTTP/2 frames and headers, the message's own fields."""


@dataclass(frozen=True)
class Transfer:
    """One message on its way.

    Attributes:
        wire_bytes: what goes through the link.
        delay_seconds: what it takes beside the time the bytes take.
    """

    wire_bytes: float
    delay_seconds: float


@dataclass(frozen=True)
class Path:
    """One direction between a worker and the PS.

    Attributes:
        rate: bytes per second that the worker's own link allows.
        delay_seconds: one-way latency of both links together.
        jitter_seconds: standard deviation of it.
        loss_ratio: share of packets lost on either link.
        round_trip_seconds: latency there and back.
    """

    rate: float
    delay_seconds: float
    jitter_seconds: float
    loss_ratio: float
    round_trip_seconds: float

    def send(self, payload_bytes: int, rng: np.random.Generator) -> Transfer:
        """A message with so much payload, as this path carries it."""
        message = payload_bytes + MESSAGE_BYTES
        packets = ceil(message / SEGMENT_BYTES)
        delay = self.delay_seconds
        if self.jitter_seconds:
            delay = max(0.0, delay + self.jitter_seconds * float(rng.standard_normal()))
        repeated, missing = 0, packets
        while self.loss_ratio and missing:
            missing = int(rng.binomial(missing, self.loss_ratio))
            repeated += missing
            delay += self.round_trip_seconds if missing else 0.0
        wire = message + packets * HEADER_BYTES
        return Transfer(wire * (packets + repeated) / packets, delay)


def paths(worker: Link, server: Link) -> tuple[Path, Path]:
    """Up and down between a worker and the PS."""
    up = worker.up, server.down
    down = server.up, worker.down
    round_trip = sum(part.delay or 0.0 for part in (*up, *down))
    return _path(worker.up, up, round_trip), _path(worker.down, down, round_trip)


def capacity(direction: Direction) -> float:
    """Bytes per second of the PS's link in one direction; infinite where it is not shaped."""
    return inf if direction.rate is None else direction.rate.bytes_per_second


def _path(own: Direction, hops: tuple[Direction, Direction], round_trip: float) -> Path:
    arrived = 1.0
    for hop in hops:
        arrived *= 1.0 - (hop.loss or 0.0)
    return Path(
        rate=capacity(own),
        delay_seconds=sum(hop.delay or 0.0 for hop in hops),
        jitter_seconds=sum((hop.jitter or 0.0) ** 2 for hop in hops) ** 0.5,
        loss_ratio=1.0 - arrived,
        round_trip_seconds=round_trip,
    )
