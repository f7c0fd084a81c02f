"""The wire format of samples: sequence number, sample index, label, pixels, checksum.

A record holds one sample or, concatenated, the scenario's number of samples. Each sample is
little-endian:

    sequence  int64    position in the device's stream, from 1 on
    sample    int64    index of the training sample
    made      float64  when the stream produced it, emulated seconds since training began
    label     float64  its class, or the number to predict
    shape     3 uint16 channels, height, width
    type      char     type of the pixels: ``f`` float32, ``B`` uint8
    pixels             as in the data set
    checksum  uint32   CRC-32 of all bytes before it
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

_HEAD = struct.Struct("<qqdd3Hc")
_CHECKSUM = struct.Struct("<I")


class BadRecordError(ValueError):
    """The bytes are not valid samples."""


@dataclass(frozen=True, eq=False)
class Sample:
    """One sample of a stream; ``pixels`` has the shape (channels, height, width)."""

    sequence: int
    sample: int
    made: float
    label: float
    pixels: NDArray[Any]


@dataclass(frozen=True)
class RecordFormat:
    """The format of a stream's records.

    Attributes:
        shape: channels, height, width of a sample.
        type: NumPy's type character of the pixels, ``f`` or ``B``.
        samples: number of samples per record.
    """

    shape: tuple[int, ...]
    type: str
    samples: int = 1

    @property
    def pixel_bytes(self) -> int:
        """Bytes of a sample's pixels."""
        return prod(self.shape) * np.dtype(self.type).itemsize

    @property
    def record_bytes(self) -> int:
        """Bytes of a record."""
        return self.samples * (_HEAD.size + self.pixel_bytes + _CHECKSUM.size)

    def encode(self, samples: Sequence[Sample]) -> bytes:
        """Encode a record of these samples; their pixels must have this format."""
        return b"".join(map(self._encode, samples))

    def decode(self, data: bytes) -> Sequence[Sample]:
        """Decode the samples of a record; their pixels are views of its bytes.

        Raises:
            BadRecordError: it is truncated, of another shape, or damaged; the message says which.
        """
        least = _HEAD.size + _CHECKSUM.size
        if len(data) < least:
            raise BadRecordError(f"truncated: {len(data)} bytes, expected at least {least}")
        *_, channels, height, width, kind = _HEAD.unpack_from(data)
        found = (channels, height, width), kind.decode("latin-1")
        if found != (self.shape, self.type):
            expected = f"{self.shape} of {self.type!r}"
            raise BadRecordError(f"wrong shape: {found[0]} of {found[1]!r}, expected {expected}")
        if len(data) != self.record_bytes:
            raise BadRecordError(f"truncated: {len(data)} bytes, expected {self.record_bytes}")
        size, whole = self.record_bytes // self.samples, memoryview(data)
        return [self._decode(whole[at : at + size]) for at in range(0, len(data), size)]

    def _encode(self, sample: Sample) -> bytes:
        head = _HEAD.pack(
            *(sample.sequence, sample.sample, sample.made, sample.label),
            *(*self.shape, self.type.encode()),
        )
        data = head + np.ascontiguousarray(sample.pixels, self.type).tobytes()
        return data + _CHECKSUM.pack(crc32(data))

    def _decode(self, data: memoryview) -> Sample:
        sequence, sample, made, label, *form = _HEAD.unpack_from(data)
        (checksum,) = _CHECKSUM.unpack_from(data, len(data) - _CHECKSUM.size)
        if checksum != crc32(data[: -_CHECKSUM.size]) or form != [*self.shape, self.type.encode()]:
            raise BadRecordError("wrong checksum")
        if sequence < 1 or sample < 0 or not (0 <= made < np.inf and np.isfinite(label)):
            numbers = f"sequence {sequence}, sample {sample}, created {made}, label {label}"
            raise BadRecordError(
                f"out of range: {numbers}; expected a sequence of at least 1, a sample of at least "
                "0, a creation time of at least 0, and finite numbers"
            )
        pixels = np.frombuffer(data, self.type, offset=_HEAD.size, count=int(np.prod(self.shape)))
        return Sample(sequence, sample, made, label, pixels.reshape(self.shape))
