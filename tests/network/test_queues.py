"""Queues as reported by the kernel."""

from __future__ import annotations

import struct

from testbed.network.sock_diag import ROOT, TCA_STATS, decode_qdisc
from testbed.values.usage import Queue


def message(*, parent: int, stats: bytes) -> bytes:
    """A struct tcmsg of interface 7 (family, index, handle, parent, info) and two attributes."""
    head = struct.pack("=BxxxiIII", 0, 7, 0x10000, parent, 2)
    kind = struct.pack("=HH4s", 8, 1, b"tbf\0")
    return head + kind + struct.pack("=HH", 4 + len(stats), TCA_STATS) + stats


# struct tc_stats: 9000 bytes, 9 packets, 3 drops, 5 overlimits, no rates, 2 packets wait
STATS = struct.pack("=QIIIIIII", 9000, 9, 3, 5, 0, 0, 2, 3000)


def test_drops_and_backlog_of_a_root() -> None:
    assert decode_qdisc(message(parent=ROOT, stats=STATS)) == (7, Queue(3, 3000))


def test_what_is_below_a_root_is_part_of_it() -> None:
    assert decode_qdisc(message(parent=0x10001, stats=STATS)) is None


def test_a_kernel_message_that_is_too_short() -> None:
    assert decode_qdisc(message(parent=ROOT, stats=STATS[:8])) is None
