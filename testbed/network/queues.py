"""The backlog and drops of interfaces' queues, through NETLINK_ROUTE.

Read with struct: pyroute2 parses everything in a dump of all ports, which takes far longer.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator, Mapping
from contextlib import nullcontext

from testbed.host.namespaces import inside
from testbed.network.sock_diag import RECEIVE_BYTES, attributes_of, dump, messages_of
from testbed.values.usage import Queue

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
        if (found := decode(message)) is not None:
            yield found


def decode(message: bytes) -> tuple[int, Queue] | None:
    """Return the interface and queue in a struct tcmsg with attributes; None if no root qdisc."""
    _, index, _, parent, _ = TCMSG.unpack_from(message)
    if parent != ROOT:
        return None
    for kind, value in attributes_of(message, TCMSG.size):
        if kind == TCA_STATS and len(value) >= STATS.size:
            return index, Queue(*STATS.unpack_from(value))
    return None
