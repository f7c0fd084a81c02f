from __future__ import annotations

import struct

import numpy as np
import pytest

from testbed.datasets.idx import read_images, read_labels
from testbed.errors import DataError

IMAGES = struct.pack(">4i", 2051, 2, 2, 3) + bytes(range(12))
LABELS = struct.pack(">2i", 2049, 4) + bytes([3, 0, 9, 1])


def test_images_row_by_row() -> None:
    pixels = read_images(IMAGES, file="x")
    np.testing.assert_array_equal(pixels, np.arange(12).reshape(2, 2, 3))
    assert pixels.dtype == np.uint8


def test_labels() -> None:
    assert read_labels(LABELS, file="x", classes=10).tolist() == [3, 0, 9, 1]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "x: end: found 0 bytes, expected a header of 16 bytes"),
        (IMAGES[:15], "x: end: found 15 bytes, expected a header of 16 bytes"),
        (LABELS + bytes(8), "x: byte 0: found magic number 2049, expected 2051, a file of images"),
        (IMAGES[:-1], r"x: byte 27: found 11 bytes after .*12 for 2 x 2 x 3 \(images, rows, colu"),
        (IMAGES + b"\0", "x: byte 28: found 13 bytes after the header, expected 12"),
        (struct.pack(">4i", 2051, 0, 2, 3), "x: byte 4: found 0 images, expected at least 1"),
        (struct.pack(">4i", 2051, 1, -2, 3), "x: byte 8: found -2 rows"),
        (struct.pack(">4i", 2051, 2**31 - 1, 2**31 - 1, 2**31 - 1), "x: byte 16: found 0 bytes"),
        (struct.pack("<4i", 2051, 1, 1, 1) + b"\0", "x: byte 0: found magic number 50855936"),
    ],
)
def test_damaged_images(content: bytes, expected: str) -> None:
    with pytest.raises(DataError, match=expected) as caught:
        read_images(content, file="x")
    assert caught.value.exit_code == 4
    assert caught.value.hint


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (LABELS[:7], "x: end: found 7 bytes, expected a header of 8 bytes"),
        (IMAGES, "x: byte 0: found magic number 2051, expected 2049, a file of labels"),
        (LABELS[:-2], r"x: byte 10: found 2 bytes after the header, expected 4 for 4 \(labels\)"),
        (LABELS[:-1] + b"\x0a", "x: byte 11: found label 10, expected 0 to 9"),
    ],
)
def test_damaged_labels(content: bytes, expected: str) -> None:
    with pytest.raises(DataError, match=expected):
        read_labels(content, file="x", classes=10)
