"""Counts the TCP options that an interface receives in addition to time stamps.

The usual header has eight words of 32 bits. While data is missing, acknowledgements say what has
arrived (SACK, RFC 2018), which takes up to seven more. No counter of the kernel has them. But it
counts the packets that a packet socket's filter accepts, also if nothing ever reads them: here one
socket for each bit of the number of further words.
"""

from __future__ import annotations

import ctypes
import socket
import struct
from contextlib import ExitStack

from testbed.network.capture import PACKET_STATISTICS, SOL_PACKET

ETH_P_IP = 0x0800
SO_ATTACH_FILTER = 26
WORD_BYTES = 4
BITS = (1, 2, 4)
USUAL_WORDS = 8

PROTOCOL_AT, DATA_OFFSET_AT = 9, 12
"""Where an IPv4 header has its protocol, and TCP's, in the upper half of a byte, its own length."""

LOAD_BYTE, LOAD_BYTE_AFTER_HEADER = 0x30, 0x50
LOAD_HEADER_LENGTH, AND, EQUAL, RETURN = 0xB1, 0x54, 0x15, 0x06
"""Instructions of classic BPF (linux/filter.h)."""


class TcpOptions:
    """Counts at an interface of the current network namespace, from now on.

    Raises:
        OSError: there is no such interface, or the process lacks CAP_NET_RAW.
    """

    def __init__(self, interface: str) -> None:
        with ExitStack() as opened:
            self._counters = {bit: opened.enter_context(_counter(interface, bit)) for bit in BITS}
            self._opened = opened.pop_all()

    def take(self) -> int:
        """Return the bytes of options, except time stamps, received since the last call."""
        return sum(bit * WORD_BYTES * _take(counter) for bit, counter in self._counters.items())

    def close(self) -> None:
        """Stop counting."""
        self._opened.close()


def _counter(interface: str, bit: int) -> socket.socket:
    """Return a socket that counts received packets with this bit in their number of words."""
    counter = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC, 0)
    try:
        counter.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 0)  # the least: nothing is read
        program = ctypes.create_string_buffer(build_filter(bit))
        length = len(program.raw) // 8
        whole = struct.pack("@HP", length, ctypes.addressof(program))
        counter.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, whole)
        counter.bind((interface, ETH_P_IP))  # before, it receives nothing
    except OSError:
        counter.close()
        raise
    return counter


def _take(counter: socket.socket) -> int:
    """Return how many packets a counter has accepted, kept or not, since the last call."""
    return int(struct.unpack("@II", counter.getsockopt(SOL_PACKET, PACKET_STATISTICS, 8))[0])


def build_filter(bit: int) -> bytes:
    """Return the filter of a counter, as classic BPF. A jump: instructions to skip if false."""
    wanted = (USUAL_WORDS | bit) << 4
    program = [
        (LOAD_BYTE, 0, 0, PROTOCOL_AT),
        (EQUAL, 0, 5, socket.IPPROTO_TCP),
        (LOAD_HEADER_LENGTH, 0, 0, 0),
        (LOAD_BYTE_AFTER_HEADER, 0, 0, DATA_OFFSET_AT),
        (AND, 0, 0, wanted),
        (EQUAL, 0, 1, wanted),
        (RETURN, 0, 0, 1),  # accept, and keep a byte
        (RETURN, 0, 0, 0),
    ]
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in program)
