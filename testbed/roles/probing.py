"""Streams of datagrams that saturate a link, their arrival times, and the resulting rate.

Python sends some 20,000 datagrams a second, which is 200 mbit. Above that, UDP's segmentation
offload sends dozens of full frames per call, and receives as many per call. If even that is too
slow on a busy host, nothing is measured: a stream with gaps has no rate.
"""

from __future__ import annotations

import select
import socket
import struct
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from statistics import median
from typing import NamedTuple

from testbed.values.topology import DEFAULT_MTU, frame_bytes

STREAM_SECONDS = 0.8
LONGEST_STREAM_SECONDS = 4.0
PACKETS = 60
"""Target number per stream; slow links get smaller packets, then more time."""

SMALLEST_PAYLOAD = 100
HEADER_BYTES = 14 + 20 + 8
PACKET_HEADER_BYTES = 20 + 8
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

FAST_SECONDS = 1.0
MOST_FRAMES = 44
"""Per call."""

BATCH_BYTES = 64_768
"""Likewise: below the 64 KB limit of a datagram before segmentation."""

LARGEST_BYTES = 1 << 16

SLICE_SECONDS = 0.05
MIN_SLICES = 8
ALIKE_RATIO = 0.01
"""At least half of the slices must agree this well, or the stream had gaps."""

QUEUE_SECONDS = 0.05
"""Backlog at the link from the beginning; its default queue holds twice that."""

BUFFER_BYTES = 1 << 22
"""Of a socket, if the kernel allows it: enough to leave it unread for tens of milliseconds."""

DRY_RATIO = 0.02
"""Share of the time in which the link may be idle: its token bucket makes up for it."""

UDP_SEGMENT, UDP_GRO, SO_RXQ_OVFL = 103, 104, 40
COUNT = struct.Struct("@I")


class ProbeStream(NamedTuple):
    """Datagrams at a constant pace.

    Attributes:
        link: bits per second of the link to saturate.
        seconds: duration.
        payload: bytes of each datagram.
        mtu: of the link.
    """

    link: float
    seconds: float
    payload: int
    mtu: int = DEFAULT_MTU

    @classmethod
    def through(cls, link: float, *, mtu: int = DEFAULT_MTU) -> ProbeStream:
        """Create a stream that saturates a link of this many bits per second."""
        share = link * STREAM_SECONDS / 8 / PACKETS - HEADER_BYTES
        payload = int(min(max(share, SMALLEST_PAYLOAD), mtu - PACKET_HEADER_BYTES))
        least = PACKETS * (payload + HEADER_BYTES) * 8 / link
        return cls(link, min(max(STREAM_SECONDS, least), LONGEST_STREAM_SECONDS), payload, mtu)

    @property
    def burst_bytes(self) -> float:
        """Bytes that may arrive faster than the link at first: a 100 Hz tick and two frames."""
        return self.link / 8 / 100 + 2 * frame_bytes(self.mtu)

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
    data, extra, _, _ = connection.recvmsg(LARGEST_BYTES, 64)
    seconds, nanoseconds = TIME.unpack_from(extra[0][2])
    return seconds + nanoseconds * 1e-9, data


class Arrival(NamedTuple):
    """Frames that arrived together.

    Attributes:
        moment: seconds since 1970, by the kernel.
        frames: number of frames.
        dropped: frames dropped so far for lack of room in the socket.
    """

    moment: float
    frames: int
    dropped: int


class FastStream(NamedTuple):
    """Full frames; ``link`` is the rate in bits per second of the link to saturate."""

    link: float
    mtu: int = DEFAULT_MTU

    @property
    def payload(self) -> int:
        """Bytes of each datagram."""
        return self.mtu - PACKET_HEADER_BYTES

    def send(self, connection: socket.socket, peer: tuple[str, int]) -> bool:
        """Send the stream; return whether the link never ran idle.

        It did not if the backlog always exceeded what it could send until the next round, by its
        configured rate, or if the kernel accepted no more.
        """
        frames = min(MOST_FRAMES, BATCH_BYTES // self.payload)
        batch = bytes(frames * self.payload)
        batch_seconds = frames * 8 * frame_bytes(self.mtu) / self.link
        begin = last = time.monotonic()
        sent, waiting, dry = 0, 0.0, 0.0
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER_BYTES)
        with _set(connection, UDP_SEGMENT, self.payload):
            while (now := time.monotonic()) < begin + FAST_SECONDS:
                dry += max(0.0, now - last - waiting)
                waiting, last = max(0.0, waiting - (now - last)), now
                due, full = QUEUE_SECONDS + EXCESS * (now - begin), False
                while sent * batch_seconds < due and not full:
                    full = not _offer(connection, batch, peer)
                    sent += 1
                    waiting = min(waiting + batch_seconds, QUEUE_SECONDS)
                if full:  # wait for room, which is half of the socket's buffer
                    waiting = QUEUE_SECONDS
                    select.select([], [connection], [], STEP_SECONDS)
                else:
                    time.sleep(STEP_SECONDS)  # the stream's pace, not a wait for a peer
        return dry <= DRY_RATIO * FAST_SECONDS

    def receive(self, connection: socket.socket) -> float | None:
        """Receive a stream; return bits per second of Ethernet frames, or None if it had gaps."""
        arrivals = []
        connection.settimeout(FIRST_SECONDS)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
        connection.setsockopt(socket.SOL_SOCKET, SO_RXQ_OVFL, 1)
        with _set(connection, UDP_GRO, 1):
            try:
                while True:
                    arrivals.append(_take(connection))
                    connection.settimeout(QUIET_SECONDS)
            except TimeoutError:
                return rate_of_slices(arrivals, mtu=self.mtu)


def rate_of_slices(arrivals: Sequence[Arrival], *, mtu: int = DEFAULT_MTU) -> float | None:
    """Return the median rate of time slices, in bits per second of Ethernet frames.

    The first and last slices are excluded, as they contain the link's burst and the stream's
    end, and so are slices with dropped frames. None if too few are left, or fewer than half
    agree.
    """
    slices: defaultdict[int, list[Arrival]] = defaultdict(list)
    for one in arrivals:
        slices[int((one.moment - arrivals[0].moment) / SLICE_SECONDS)].append(one)
    rates = []
    for number in sorted(slices)[1:-1]:
        first, *rest = slices[number]
        if rest and rest[-1].dropped == first.dropped and rest[-1].moment > first.moment:
            bits = 8 * frame_bytes(mtu) * sum(one.frames for one in rest)
            rates.append(bits / (rest[-1].moment - first.moment))
    if len(rates) < MIN_SLICES:
        return None
    middle = median(rates)
    alike = sum(abs(rate - middle) <= ALIKE_RATIO * middle for rate in rates)
    return middle if 2 * alike >= len(rates) else None


def _offer(connection: socket.socket, batch: bytes, peer: tuple[str, int]) -> bool:
    """Send a batch if the kernel has room for it."""
    try:
        connection.sendto(batch, socket.MSG_DONTWAIT, peer)
    except BlockingIOError:
        return False
    return True


def _take(connection: socket.socket) -> Arrival:
    """Receive the next frames; raise TimeoutError if none arrive in time."""
    data, extra, _, _ = connection.recvmsg(LARGEST_BYTES, 128)
    moment, size, dropped = 0.0, len(data), 0
    for level, kind, value in extra:
        if (level, kind) == (socket.SOL_SOCKET, SO_TIMESTAMPNS):
            seconds, nanoseconds = TIME.unpack_from(value)
            moment = seconds + nanoseconds * 1e-9
        elif (level, kind) == (socket.SOL_SOCKET, SO_RXQ_OVFL):
            (dropped,) = COUNT.unpack_from(value)
        elif (level, kind) == (socket.IPPROTO_UDP, UDP_GRO):
            (size,) = COUNT.unpack_from(value)
    return Arrival(moment, -(-len(data) // size), dropped)


@contextmanager
def _set(connection: socket.socket, option: int, value: int) -> Iterator[None]:
    """Set a UDP option of a datagram socket inside the context."""
    connection.setsockopt(socket.IPPROTO_UDP, option, value)
    try:
        yield
    finally:
        connection.setsockopt(socket.IPPROTO_UDP, option, 0)
