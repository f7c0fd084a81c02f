"""Streams of paced datagrams, their arrival times, and the resulting rate."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

STREAM_SECONDS = 0.8
LONGEST_STREAM_SECONDS = 4.0
PACKETS = 60
"""Target number per stream; slow links get smaller packets, then more time."""

LARGEST_PAYLOAD, SMALLEST_PAYLOAD = 1472, 100
HEADER_BYTES = 14 + 20 + 8
EXCESS = 1.3
"""Ratio of a stream's rate to the link's, once the link's token bucket is empty."""

AHEAD = 0.25
"""Share of a stream that is sent at once, as far as the queue accepts it.

On a host that probes several links at a time a sender may get no CPU for a moment. The link then
still has data to send.
"""

STEP_SECONDS = 0.002
FIRST_SECONDS = 3.0
QUIET_SECONDS = 0.3
"""A stream has ended when nothing has arrived for this long."""

RECEIVE_BUFFER_BYTES = 1 << 21
SO_TIMESTAMPNS = 35
TIME = struct.Struct("@qq")


class ProbeStream(NamedTuple):
    """Datagrams at a constant pace.

    Attributes:
        link: bits per second of the link to saturate.
        seconds: duration.
        payload: bytes of each datagram.
    """

    link: float
    seconds: float
    payload: int

    @classmethod
    def through(cls, link: float) -> ProbeStream:
        """Create a stream that saturates a link of this many bits per second."""
        share = link * STREAM_SECONDS / 8 / PACKETS - HEADER_BYTES
        payload = int(min(max(share, SMALLEST_PAYLOAD), LARGEST_PAYLOAD))
        least = PACKETS * (payload + HEADER_BYTES) * 8 / link
        return cls(link, min(max(STREAM_SECONDS, least), LONGEST_STREAM_SECONDS), payload)

    @property
    def burst_bytes(self) -> float:
        """Bytes that may arrive faster than the link at first: a 100 Hz tick and two frames."""
        return self.link / 8 / 100 + 2 * (LARGEST_PAYLOAD + HEADER_BYTES)

    def send(self, connection: socket.socket, peer: tuple[str, int]) -> bool:
        """Send the stream in steps of a few milliseconds, beginning with a burst.

        The burst fills the bucket and the queue: at its own pace the stream would need several
        times the bucket's size. Returns True: a link this slow never runs idle.
        """
        frame = self.payload + HEADER_BYTES
        packet_seconds = frame * 8 / (self.link * EXCESS)
        at_once = self.burst_bytes + AHEAD * self.seconds * self.link / 8
        data, begin, sent = bytes(self.payload), time.monotonic(), -round(at_once / frame)
        while (now := time.monotonic() - begin) < self.seconds:
            while sent * packet_seconds <= now:
                connection.sendto(data, peer)
                sent += 1
            time.sleep(max(packet_seconds, STEP_SECONDS))  # the stream's pace, not a wait
        return True

    def receive(self, connection: socket.socket) -> float | None:
        """Receive a stream; return bits per second of Ethernet frames, None if too few arrived."""
        arrivals = []
        connection.settimeout(FIRST_SECONDS)
        try:
            while True:
                moment, data = receive(connection)
                arrivals.append((moment, len(data)))
                connection.settimeout(QUIET_SECONDS)
        except TimeoutError:
            return rate_of(arrivals, self.burst_bytes)


def rate_of(arrivals: list[tuple[float, int]], burst_bytes: float) -> float | None:
    """Return bits per second of Ethernet frames, excluding the link's burst.

    ``arrivals`` holds arrival times and payload bytes.
    """
    passed = 0
    for start, (_, size) in enumerate(arrivals):
        passed += size + HEADER_BYTES
        if passed > burst_bytes:
            rest = arrivals[start:]
            break
    else:
        return None
    seconds = rest[-1][0] - rest[0][0]
    bits = 8 * sum(size + HEADER_BYTES for _, size in rest[1:])
    return bits / seconds if seconds > 0 else None


@contextmanager
def datagrams(address: str = "", port: int = 0) -> Iterator[socket.socket]:
    """Open a UDP socket that receives the kernel's arrival times."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as connection:
        connection.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
        connection.bind((address, port))
        yield connection


def receive(connection: socket.socket) -> tuple[float, bytes]:
    """Receive a datagram; return its arrival time by the kernel, in seconds since 1970, and data.

    Raises:
        TimeoutError: none arrived in time.
    """
    data, extra, _, _ = connection.recvmsg(2048, 64)
    seconds, nanoseconds = TIME.unpack_from(extra[0][2])
    return seconds + nanoseconds * 1e-9, data
