"""A stream that fills a fast link: the kernel cuts what one call hands over into full frames.

Python hands over some 20,000 datagrams a second, which is 200 mbit. UDP's segmentation offload
takes dozens of them in one call, and gives as many in one. Where even that is too slow, as the host
has other things to do, nothing is measured: a stream with holes in it has no rate.
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

from testbed.roles.probing import (
    EXCESS,
    FIRST_SECONDS,
    HEADER_BYTES,
    LARGEST_PAYLOAD,
    QUIET_SECONDS,
    SO_TIMESTAMPNS,
    STEP_SECONDS,
    TIME,
)

SECONDS = 1.0
FRAMES = 44
"""In one call: below the 64 KB of a datagram before it is cut."""

FRAME_BITS = 8 * (LARGEST_PAYLOAD + HEADER_BYTES)
LARGEST_BYTES = 1 << 16

SLICE_SECONDS = 0.05
FEWEST_SLICES = 8
ALIKE_RATIO = 0.01
"""Half of the slices must agree so well, or the stream had holes."""

QUEUE_SECONDS = 0.05
"""What is to wait in front of the link from the beginning; by default its queue holds twice it."""

BUFFER_BYTES = 1 << 22
"""Of a socket, as far as the kernel allows: for tens of milliseconds nobody need look at it."""

DRY_RATIO = 0.02
"""The link may have had nothing to send for that share of the time: its bucket makes up for it."""

UDP_SEGMENT, UDP_GRO, SO_RXQ_OVFL = 103, 104, 40
COUNT = struct.Struct("@I")


class Arrival(NamedTuple):
    """Frames that came at once.

    Attributes:
        moment: seconds since 1970, by the kernel.
        frames: how many.
        dropped: what found no room in the socket so far.
    """

    moment: float
    frames: int
    dropped: int


class FastStream(NamedTuple):
    """Full frames, ``link`` being the bits per second of the link that they are to fill."""

    link: float

    def send(self, connection: socket.socket, peer: tuple[str, int]) -> bool:
        """Send it all; returns whether the link always had something to send.

        It had if more waited than it could send since the round before, by its configured rate, or
        if the kernel took no more.
        """
        batch, batch_seconds = bytes(FRAMES * LARGEST_PAYLOAD), FRAMES * FRAME_BITS / self.link
        begin = last = time.monotonic()
        sent, waiting, dry = 0, 0.0, 0.0
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER_BYTES)
        with _set(connection, UDP_SEGMENT, LARGEST_PAYLOAD):
            while (now := time.monotonic()) < begin + SECONDS:
                dry += max(0.0, now - last - waiting)
                waiting, last = max(0.0, waiting - (now - last)), now
                due, full = QUEUE_SECONDS + EXCESS * (now - begin), False
                while sent * batch_seconds < due and not full:
                    full = not _offer(connection, batch, peer)
                    sent += 1
                    waiting = min(waiting + batch_seconds, QUEUE_SECONDS)
                if full:  # it waits for room, which is half of what the socket may hold
                    waiting = QUEUE_SECONDS
                    select.select([], [connection], [], STEP_SECONDS)
                else:
                    time.sleep(STEP_SECONDS)  # the stream's pace, no wait for anyone
        return dry <= DRY_RATIO * SECONDS

    def receive(self, connection: socket.socket) -> float | None:
        """Take one in; bits per second of Ethernet frames, None if it had holes."""
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
                return rate_of_slices(arrivals)


def rate_of_slices(arrivals: Sequence[Arrival]) -> float | None:
    """The median rate of slices of time, in bits per second of Ethernet frames.

    The first and the last slice are left out, as the link's bucket and the stream's end are in
    them, and those in which something found no room. None if too few are left, or fewer than half
    agree.
    """
    slices: defaultdict[int, list[Arrival]] = defaultdict(list)
    for one in arrivals:
        slices[int((one.moment - arrivals[0].moment) / SLICE_SECONDS)].append(one)
    rates = []
    for number in sorted(slices)[1:-1]:
        first, *rest = slices[number]
        if rest and rest[-1].dropped == first.dropped and rest[-1].moment > first.moment:
            bits = FRAME_BITS * sum(one.frames for one in rest)
            rates.append(bits / (rest[-1].moment - first.moment))
    if len(rates) < FEWEST_SLICES:
        return None
    middle = median(rates)
    alike = sum(abs(rate - middle) <= ALIKE_RATIO * middle for rate in rates)
    return middle if 2 * alike >= len(rates) else None


def _offer(connection: socket.socket, batch: bytes, peer: tuple[str, int]) -> bool:
    """Hand a batch over, if the kernel has room for it."""
    try:
        connection.sendto(batch, socket.MSG_DONTWAIT, peer)
    except BlockingIOError:
        return False
    return True


def _take(connection: socket.socket) -> Arrival:
    """What came next; TimeoutError if nothing did in time."""
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
    """Give a socket for datagrams an option of UDP's for a while."""
    connection.setsockopt(socket.IPPROTO_UDP, option, value)
    try:
        yield
    finally:
        connection.setsockopt(socket.IPPROTO_UDP, option, 0)
