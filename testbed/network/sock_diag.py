"""What the kernel counts in a network namespace: TCP's counters of its sockets, and the queues.

A closed socket's counters are lost. So the kernel is queried for connected sockets,
and monitored for sockets that end: it reports their final counters.

Read with struct and not with pyroute2: its tcp_info ends before the retransmitted bytes, and
polling 200 sockets takes it 30 ms of CPU instead of one or two; likewise a dump of all qdiscs.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext, suppress
from typing import NamedTuple

from testbed.errors import HostError
from testbed.host.namespaces import inside
from testbed.values.usage import Queue

NETLINK_SOCK_DIAG = 4
SOCK_DIAG_BY_FAMILY = 20
NLM_F_REQUEST_DUMP = 0x301
NLMSG_ERROR, NLMSG_DONE = 2, 3
INET_DIAG_INFO = 2

ESTABLISHED, FIN_WAIT1, FIN_WAIT2, CLOSE_WAIT, LAST_ACK, CLOSING = 1, 4, 5, 8, 9, 11
CONNECTED = (ESTABLISHED, FIN_WAIT1, FIN_WAIT2, CLOSE_WAIT, LAST_ACK, CLOSING)
"""TCP states in which a socket has counters; they are gone in TIME_WAIT."""

SOL_NETLINK = 270
NETLINK_ADD_MEMBERSHIP, NETLINK_NO_ENOBUFS = 1, 5
ENDED = (1, 3)
"""Multicast groups that the kernel notifies of closed TCP sockets, over IPv4 and IPv6."""

SO_RCVBUFFORCE = 33
HEARD_BYTES = 1 << 22
"""Size of the receive buffer for notifications of closed sockets: enough for some thousand between
two readings. The kernel drops further notifications."""

HEADER = struct.Struct("=IHHII")
REQUEST = struct.Struct("=BBBxI48x")
STATE = 1  # where struct inet_diag_msg has it
MESSAGE = struct.Struct("=8x16s16s4xQ20x")
ATTRIBUTE = struct.Struct("=HH")
TYPE_MASK = 0x3FFF
RECEIVE_BYTES = 1 << 18

LOOPBACKS = (b"\x7f", bytes(10) + b"\xff\xff\x7f", bytes(15) + b"\x01")


TCP_INFO = struct.Struct("=16xI80xI16xQQII64xQ")
"""The fields read from struct tcp_info (linux/tcp.h), which has only ever grown at its end."""

ROUND_TRIP = struct.Struct("=68xI")
"""The field tcpi_rtt of struct tcp_info."""

MAPPED = bytes(10) + b"\xff\xff"
"""Prefix of IPv6 addresses that represent IPv4 addresses."""


class TcpCounters(NamedTuple):
    """Counters of one socket, or the sum of several.

    Attributes:
        received_bytes: payload received in order, without headers and duplicates.
        segments_in: packets received, acknowledgements included.
        acked_bytes: payload sent and acknowledged.
        segments_out: packets sent, acknowledgements and retransmissions included.
        retransmitted_bytes: payload retransmitted.
    """

    received_bytes: int = 0
    segments_in: int = 0
    acked_bytes: int = 0
    segments_out: int = 0
    retransmitted_bytes: int = 0


class TcpSocket(NamedTuple):
    """A socket: its cookie, which the kernel never reuses, and its counters."""

    cookie: int
    counters: TcpCounters
    peer: str = ""  # IPv4 address of the other end
    round_trip_seconds: float = 0.0  # smoothed


class SocketDiagnosis:
    """The TCP sockets, over IPv4 and IPv6, in the network namespace of process ``pid``.

    Connections within that namespace are excluded: they do not use its link. The namespace lives
    until this is closed, even if all of its processes have ended.
    Raises:
        OSError: no such process, or its namespace may not be entered.
    """

    def __init__(self, pid: int) -> None:
        with inside(pid):
            self._netlink = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_SOCK_DIAG)
        self._ended: list[TcpSocket] = []
        self._netlink.bind((0, 0))  # only bound sockets receive group messages
        with suppress(PermissionError):  # in a user namespace, the kernel's default size applies
            self._netlink.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, HEARD_BYTES)
        # Lost messages must not look like an error of a dump.
        self._netlink.setsockopt(SOL_NETLINK, NETLINK_NO_ENOBUFS, 1)
        for group in ENDED:
            self._netlink.setsockopt(SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, group)

    def connected(self) -> list[TcpSocket]:
        """Return the sockets that are connected now.

        Raises:
            HostError: the kernel does not report sockets.
        """
        families = (socket.AF_INET, socket.AF_INET6)  # gRPC uses IPv6 with mapped IPv4 addresses
        return [found for family in families for found in self._dump(family)]

    def ended(self) -> list[TcpSocket]:
        """Return the sockets that have ended since the last call, with their final counters."""
        with suppress(BlockingIOError):
            while True:
                for _ in self._received(socket.MSG_DONTWAIT):
                    pass
        ended, self._ended = self._ended, []
        return ended

    def close(self) -> None:
        """Release the namespace."""
        self._netlink.close()

    def _dump(self, family: int) -> Iterator[TcpSocket]:
        states = sum(1 << state for state in CONNECTED)
        body = REQUEST.pack(family, socket.IPPROTO_TCP, 1 << (INET_DIAG_INFO - 1), states)
        for message in dump(
            *(self._netlink, SOCK_DIAG_BY_FAMILY, body, self._received),
            what="TCP sockets",
            hint="Load it with `modprobe tcp_diag` (CONFIG_INET_DIAG).",
        ):
            if (found := _socket(message)) is not None:
                yield found

    def _received(self, flags: int = 0) -> Iterator[tuple[int, bytes]]:
        """Yield (type, body) of the messages of one call; put ended sockets' messages aside."""
        for kind, message in messages_of(self._netlink.recv(RECEIVE_BYTES, flags)):
            if kind == SOCK_DIAG_BY_FAMILY and message[STATE] not in CONNECTED:
                found = _socket(message)
                self._ended += [] if found is None else [found]
            else:
                yield kind, message


def decode_tcp_info(info: bytes) -> TcpCounters:
    """Return the counters of a struct tcp_info; 0 for those that an older kernel lacks.

    Before 4.19 it has no retransmitted bytes: they are estimated as whole segments.
    """
    whole = info[: TCP_INFO.size].ljust(TCP_INFO.size, b"\0")
    segment, again, acked, received, sent, came, retransmitted = TCP_INFO.unpack(whole)
    return TcpCounters(
        received_bytes=received,
        segments_in=came,
        acked_bytes=acked,
        segments_out=sent,
        retransmitted_bytes=retransmitted if len(info) >= TCP_INFO.size else again * segment,
    )


def dump(
    netlink: socket.socket,
    request: int,
    body: bytes,
    received: Callable[[], Iterator[tuple[int, bytes]]],
    *,
    what: str,
    hint: str = "",
) -> Iterator[bytes]:
    """Request a dump, and yield the bodies of its messages.

    Args:
        netlink: a netlink socket.
        request: type of the request.
        body: of the request.
        received: receives once from that socket, see ``messages_of``.
        what: the objects, for the error; ``hint`` is the error's.

    Raises:
        HostError: the kernel does not report these objects.
    """
    length = HEADER.size + len(body)
    netlink.send(HEADER.pack(length, request, NLM_F_REQUEST_DUMP, 1, 0) + body)
    while True:
        for kind, message in received():
            if kind == NLMSG_DONE:
                return
            if kind == NLMSG_ERROR:
                number = -struct.unpack_from("=i", message)[0]
                raise HostError(f"the kernel does not report {what} (error {number}).", hint=hint)
            yield message


def messages_of(received: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield (type, body) of each netlink message in the data of one receive call."""
    position = 0
    while position < len(received):
        length, kind, *_ = HEADER.unpack_from(received, position)
        yield kind, received[position + HEADER.size : position + length]
        position += _aligned(length)


def attributes_of(message: bytes, position: int) -> Iterator[tuple[int, bytes]]:
    """Yield (type, value) of each attribute in a message, from a position on."""
    while position + ATTRIBUTE.size <= len(message):
        length, kind = ATTRIBUTE.unpack_from(message, position)
        yield kind & TYPE_MASK, message[position + ATTRIBUTE.size : position + length]
        position += max(_aligned(length), ATTRIBUTE.size)


def _socket(message: bytes) -> TcpSocket | None:
    """Decode a struct inet_diag_msg with attributes; None for a connection that uses no link."""
    source, target, cookie = MESSAGE.unpack_from(message)
    if source == target or source.startswith(LOOPBACKS):
        return None
    found = (info for kind, info in attributes_of(message, MESSAGE.size) if kind == INET_DIAG_INFO)
    info = next(found, b"")
    peer = socket.inet_ntoa(target[12:] if target.startswith(MAPPED) else target[:4])
    return TcpSocket(cookie, decode_tcp_info(info), peer, _round_trip(info))


def _round_trip(info: bytes) -> float:
    """Return tcpi_rtt in seconds, which the kernel counts in microseconds; 0 before the first."""
    return ROUND_TRIP.unpack_from(info)[0] / 1e6 if len(info) >= ROUND_TRIP.size else 0.0


def _aligned(length: int) -> int:
    return (length + 3) & ~3


NETLINK_ROUTE = 0
RTM_GETQDISC = 38
ROOT = 0xFFFFFFFF
TCA_STATS = 3

TCMSG = struct.Struct("=BxxxiIII")
"""family, interface, handle, parent, info (linux/rtnetlink.h)."""

STATS = struct.Struct("=8x4xI16xI")
"""drops and backlog of struct tc_stats (linux/pkt_sched.h): bytes, packets, drops, overlimits, bps,
pps, qlen, backlog."""


def read_queues(pid: int | None = None) -> dict[str, Queue]:
    """Return the root qdisc of every interface, by the interface's name.

    Args:
        pid: a process in the network namespace to read; None for the current one.

    Raises:
        OSError: no such process, or its namespace may not be entered.
        HostError: the kernel does not report qdiscs.
    """
    with nullcontext() if pid is None else inside(pid):
        control = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_ROUTE)
        names: Mapping[int, str] = dict(socket.if_nameindex())
    with control:
        return {names[index]: queue for index, queue in _dump(control) if index in names}


def _dump(control: socket.socket) -> Iterator[tuple[int, Queue]]:
    body = TCMSG.pack(socket.AF_UNSPEC, 0, 0, 0, 0)
    for message in dump(
        control,
        RTM_GETQDISC,
        body,
        lambda: messages_of(control.recv(RECEIVE_BYTES)),
        what="qdiscs",
    ):
        if (found := decode_qdisc(message)) is not None:
            yield found


def decode_qdisc(message: bytes) -> tuple[int, Queue] | None:
    """Return the interface and queue in a struct tcmsg with attributes; None if no root qdisc."""
    _, index, _, parent, _ = TCMSG.unpack_from(message)
    if parent != ROOT:
        return None
    for kind, value in attributes_of(message, TCMSG.size):
        if kind == TCA_STATS and len(value) >= STATS.size:
            return index, Queue(*STATS.unpack_from(value))
    return None
