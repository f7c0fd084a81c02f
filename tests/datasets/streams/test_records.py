"""Records as bytes, and invalid records."""

from __future__ import annotations

import struct
from zlib import crc32

import numpy as np
import pytest

from testbed.datasets.streams import BadRecordError, RecordFormat, Sample

FORMAT = RecordFormat((1, 2, 2), "f")
SAMPLE = Sample(7, 41, 0.25, 3.0, np.array([[[0.5, 1.0], [1.5, 2.0]]], np.float32))
HEAD_BYTES = 4 * 8 + 3 * 2 + 1


def checked(data: bytes) -> bytes:
    return data + struct.pack("<I", crc32(data))


def test_a_record_survives_a_round_trip() -> None:
    data = FORMAT.encode([SAMPLE])
    assert len(data) == HEAD_BYTES + 4 * 4 + 4 == HEAD_BYTES + FORMAT.pixel_bytes + 4
    (found,) = FORMAT.decode(data)
    assert (found.sequence, found.sample, found.made, found.label) == (7, 41, 0.25, 3.0)
    assert found.pixels.dtype == np.float32
    assert np.array_equal(found.pixels, SAMPLE.pixels)


def test_raw_pixels_are_a_byte_each() -> None:
    raw = RecordFormat((3, 4, 4), "B")
    pixels = np.arange(48, dtype=np.uint8).reshape(3, 4, 4)
    assert raw.pixel_bytes == 48
    (found,) = raw.decode(raw.encode([Sample(1, 0, 0.0, 9.0, pixels)]))
    assert np.array_equal(found.pixels, pixels)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "truncated: 0 bytes, expected at least 43"),
        (FORMAT.encode([SAMPLE])[:-1], "truncated: 58 bytes, expected 59"),
        (FORMAT.encode([SAMPLE]) + b"\0", "truncated: 60 bytes, expected 59"),
        (FORMAT.encode([SAMPLE])[:-1] + b"\0", "wrong checksum"),
        (RecordFormat((1, 1, 4), "f").encode([SAMPLE]), r"wrong shape: \(1, 1, 4\)"),
        (RecordFormat((1, 2, 2), "B").encode([SAMPLE]), "wrong shape: .* of 'B'"),
        (FORMAT.encode([Sample(0, 1, 0.0, 0.0, SAMPLE.pixels)]), "sequence 0"),
        (FORMAT.encode([Sample(1, -1, 0.0, 0.0, SAMPLE.pixels)]), "sample -1"),
        (FORMAT.encode([Sample(1, 1, float("nan"), 0.0, SAMPLE.pixels)]), "created nan"),
        (FORMAT.encode([Sample(1, 1, 0.0, float("inf"), SAMPLE.pixels)]), "label inf"),
    ],
)
def test_invalid_bytes_are_refused(data: bytes, reason: str) -> None:
    with pytest.raises(BadRecordError, match=reason):
        FORMAT.decode(data)


def test_several_samples_are_concatenated() -> None:
    """Two of 59 bytes each; truncated between them, or with the second damaged, it is invalid."""
    pair = RecordFormat((1, 2, 2), "f", samples=2)
    other = Sample(8, 12, 0.5, 1.0, 2 * SAMPLE.pixels)
    data = pair.encode([SAMPLE, other])
    assert len(data) == pair.record_bytes == 118
    found = pair.decode(data)
    assert [(one.sequence, one.sample, one.made) for one in found] == [(7, 41, 0.25), (8, 12, 0.5)]
    assert np.array_equal(found[1].pixels, other.pixels)
    with pytest.raises(BadRecordError, match="truncated: 59 bytes, expected 118"):
        pair.decode(data[:59])
    for place in (60, 59 + 38, 110):  # the second's sequence, its type, its pixels
        damaged = bytearray(data)
        damaged[place] ^= 1
        with pytest.raises(BadRecordError, match="wrong checksum"):
            pair.decode(bytes(damaged))


@pytest.mark.parametrize("place", range(0, 55, 6))
def test_a_byte_changed_in_transit_is_detected(place: int) -> None:
    data = bytearray(FORMAT.encode([SAMPLE]))
    data[place] ^= 0x10
    with pytest.raises(BadRecordError):
        FORMAT.decode(bytes(data))
