"""One bit per entry."""

from __future__ import annotations

import numpy as np
import pytest

from testbed.payloads import Signs


def test_signs_by_hand() -> None:
    """-1 0 2 -3 | 4 5 -6 7 | -8 are the bits 1001 0010 1, of which the last byte uses one."""
    values = np.array([-1, 0, 2, -3, 4, 5, -6, 7, -8], np.float32)
    signs = Signs.of_values(values)
    assert signs.bits.tolist() == [0b10010010, 0b10000000]
    assert signs.values().tolist() == [-1, 1, 1, -1, 1, 1, -1, 1, -1]
    assert (signs.entries, signs.size) == (9, 6)


@pytest.mark.parametrize(
    ("count", "bits", "flaw"),
    [
        ([8], [0, 0], "the signs of 8 values for a model of 9"),
        ([], [0, 0], "the signs of 0 values for a model of 9"),
        ([9, 9], [0, 0], "the signs of 9 values for a model of 9"),
        ([9], [0], "1 bytes with the signs of 9 values"),
        ([9], [0, 0b01000000], "an unused bit is set"),
    ],
)
def test_flaws(count: list[int], bits: list[int], flaw: str) -> None:
    assert Signs(np.array(count, np.int32), np.array(bits, np.uint8)).flaw(9) == flaw
