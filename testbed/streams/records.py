"""A sample as it travels: its place in the stream, which it is, its label and pixels, a checksum.

Little-endian, one behind the other:

    sequence  int64    place in the device's stream, from 1 on
    sample    int64    number of the training sample
    made      float64  when the stream made it, emulated seconds since the training began
    label     float64  its class, or the number that is to be predicted
    shape     3 uint16 channels, height, width
    type      char     of the pixels: ``f`` float32, ``B`` uint8
    pixels             as the data set has them
    checksum  uint32   CRC-32 of all before it
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

_HEAD = struct.Struct("<qqdd3Hc")
_CHECKSUM = struct.Struct("<I")


class BadRecordError(ValueError):
    """Bytes that are no sample."""


@dataclass(frozen=True, eq=False)
class Record:
    """One sample of a stream; ``pixels`` has the shape (channels, height, width)."""

    sequence: int
    sample: int
    made: float
    label: float
    pixels: NDArray[Any]


@dataclass(frozen=True)
class RecordFormat:
    """How a data set's samples look.

    Attributes:
        shape: channels, height, width.
        type: numpy's character of the pixels, ``f`` or ``B``.
    """

    shape: tuple[int, int, int]
    type: str

    @property
    def pixel_bytes(self) -> int:
        """Bytes of a sample's pixels."""
        channels, height, width = self.shape
        return channels * height * width * np.dtype(self.type).itemsize

    def encode(self, record: Record) -> bytes:
        """The record's bytes; its pixels are of this format."""
        head = _HEAD.pack(
            *(record.sequence, record.sample, record.made, record.label),
            *(*self.shape, self.type.encode()),
        )
        data = head + np.ascontiguousarray(record.pixels, self.type).tobytes()
        return data + _CHECKSUM.pack(crc32(data))

    def decode(self, data: bytes) -> Record:
        """The record of some bytes; its pixels are a view of them.

        Raises:
            BadRecordError: it is truncated, of another shape, or damaged; says which.
        """
        least = _HEAD.size + _CHECKSUM.size
        if len(data) < least:
            raise BadRecordError(f"truncated: {len(data)} bytes, expected at least {least}")
        sequence, sample, made, label, *shape, kind = _HEAD.unpack_from(data)
        found = tuple(shape), kind.decode("latin-1")
        if found != (self.shape, self.type):
            expected = f"{self.shape} of {self.type!r}"
            raise BadRecordError(f"wrong shape: {found[0]} of {found[1]!r}, expected {expected}")
        size = least + self.pixel_bytes
        if len(data) != size:
            raise BadRecordError(f"truncated: {len(data)} bytes, expected {size}")
        (checksum,) = _CHECKSUM.unpack_from(data, size - _CHECKSUM.size)
        if checksum != crc32(memoryview(data)[: -_CHECKSUM.size]):
            raise BadRecordError("wrong checksum")
        if sequence < 1 or sample < 0 or not (0 <= made < np.inf and np.isfinite(label)):
            numbers = f"sequence {sequence}, sample {sample}, made {made}, label {label}"
            raise BadRecordError(f"out of range: {numbers}")
        pixels = np.frombuffer(data, self.type, offset=_HEAD.size, count=int(np.prod(self.shape)))
        return Record(sequence, sample, made, label, pixels.reshape(self.shape))
