"""Captures the frames of an interface into a file that tcpdump and Wireshark read.

The format is that of libpcap 2.4, with microseconds: a header, then every frame with its time and
length (https://www.tcpdump.org/manpages/pcap-savefile.5.html).

``python -m testbed.network.capture INTERFACE SECONDS BYTES`` prints such a file, and what it has
written to standard error, as JSON.
"""

from __future__ import annotations

import errno
import json
import select
import socket
import struct
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import BinaryIO

ETH_P_ALL = 3
SOL_PACKET, PACKET_STATISTICS = 263, 6
SO_RCVBUFFORCE, SO_TIMESTAMPNS = 33, 35
"""A buffer above the host's limit; the kernel adds the time at which it saw a frame."""

HEADER = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 2**18, 1)
"""Magic number, version, two unused fields, the longest frame, and Ethernet."""

RECORD = struct.Struct("<IIII")
TIME = struct.Struct("@ll")
LONGEST_FRAME = 2**18
"""Bytes. With segmentation offloads, a frame may be far longer than the MTU."""

BUFFER_BYTES = 2**23
NANOSECONDS_OF_A_MICROSECOND = 1000
GONE = (errno.ENETDOWN, errno.ENXIO, errno.ENODEV)


@dataclass(frozen=True)
class Captured:
    """What a capture has written, and why it ended.

    Attributes:
        frames: number of frames in the file.
        written_bytes: length of the file.
        dropped: number of frames that are missing, as they came faster than they were read.
        ended: ``time``, ``size`` (the next frame would not have fitted), or ``link`` (it is gone).
    """

    frames: int
    written_bytes: int
    dropped: int
    ended: str


def open_capture(interface: str) -> socket.socket:
    """Open a socket that receives all frames of an interface, in both directions, from now on.

    The interface is one of the calling process's network namespace; the process needs CAP_NET_RAW
    there. Another process may read from the socket.

    Raises:
        OSError: there is no such interface, or the process may not.
    """
    opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 0)
    try:
        opened.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        _enlarge(opened)
        opened.bind((interface, ETH_P_ALL))  # before, it receives nothing
    except OSError:
        opened.close()
        raise
    return opened


def _enlarge(opened: socket.socket) -> None:
    """Enlarge the receive buffer; without the host's CAP_NET_ADMIN, up to the host's limit."""
    try:
        opened.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, BUFFER_BYTES)
    except PermissionError:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)


def capture(
    frames: socket.socket,
    into: BinaryIO,
    *,
    seconds: float,
    most_bytes: int,
    steady: Callable[[], float],
) -> Captured:
    """Write frames until a time has passed, the file is full, or the link is gone.

    Args:
        frames: a socket of ``open_capture``.
        into: the file; complete up to the last frame whenever nothing arrives.
        seconds: real time from now on.
        most_bytes: limit of the file's length.
        steady: a clock, in seconds.

    Raises:
        OSError: the file cannot be written.
    """
    end, count, written = steady() + seconds, 0, into.write(HEADER)
    poller = select.poll()
    poller.register(frames, select.POLLIN)
    while True:
        into.flush()
        left = end - steady()
        if left <= 0 or not poller.poll(1000 * left):
            return Captured(count, written, _dropped(frames), "time")
        for record in iter(lambda: _next_record(frames), b""):
            if record is None:
                return Captured(count, written, 0, "link")
            if written + len(record) > most_bytes:
                return Captured(count, written, _dropped(frames), "size")
            written += into.write(record)
            count += 1
            if steady() >= end:
                break


def _next_record(frames: socket.socket) -> bytes | None:
    """Return the next frame as a record; empty if none is waiting, None if the link is gone."""
    try:
        data, extra, _, _ = frames.recvmsg(LONGEST_FRAME, 64, socket.MSG_DONTWAIT)
    except BlockingIOError:
        return b""
    except OSError as error:
        if error.errno in GONE:
            return None
        raise
    ((_, _, stamp),) = extra
    seconds, nanoseconds = TIME.unpack(stamp[: TIME.size])
    microseconds = nanoseconds // NANOSECONDS_OF_A_MICROSECOND
    return RECORD.pack(seconds, microseconds, len(data), len(data)) + data


def _dropped(frames: socket.socket) -> int:
    """Return how many frames the kernel has dropped because the socket's buffer was full."""
    counts = frames.getsockopt(SOL_PACKET, PACKET_STATISTICS, 8)
    return int(struct.unpack("@II", counts)[1])


def main(interface: str, seconds: str, most_bytes: str) -> None:
    """Print what an interface of this network namespace carries."""
    with open_capture(interface) as frames:
        found = capture(
            *(frames, sys.stdout.buffer),
            seconds=float(seconds),
            most_bytes=int(most_bytes),
            steady=time.monotonic,
        )
    json.dump(asdict(found), sys.stderr)


if __name__ == "__main__":
    main(*sys.argv[1:])
