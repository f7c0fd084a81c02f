"""The counters of pairs of nodes, as a kernel reports them."""

from __future__ import annotations

import os

import pytest

from testbed.network.frames import Frames, elements_of, frame_counts

ELEMENT = (
    "07000002 0c000100 7465737462656400 0a000200 7061697273000000"  # family, table, set
    "44000300 40000100 10000100 0c000100 0a4d0001 0a4d0002"  # 10.77.0.1 to 10.77.0.2
    "2c000700 0c000100 636f756e74657200 1c000200"  # counter
    "0c000100 00000000000001d4 0c000200 0000000000000003"  # bytes and packets
)


def test_an_element_by_hand() -> None:
    """0x1d4 are 468 bytes of three IP packets, each in a frame with 14 bytes more: 510."""
    found = dict(elements_of(bytes.fromhex(ELEMENT)))
    assert found == {("10.77.0.1", "10.77.0.2"): Frames(510, 3)}


@pytest.mark.skipif(os.geteuid() == 0, reason="root may count pairs")
def test_without_rights_nothing_is_counted() -> None:
    assert frame_counts() is None
