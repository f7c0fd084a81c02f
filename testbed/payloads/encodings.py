"""Encodings of a push's payload: raw, packed without loss, or rounded to float16 and packed.

To pack an array, it is split into byte planes, the first with every number's highest byte, and each
plane is deflated separately if that makes it shorter: the bytes of one plane are similar, those of
one number are not. Indices are encoded as differences between neighbours, whose high bytes are
nearly all zero. For values, a plane of bits marks the zeros, such as a third of a dense gradient
behind ReLUs, and only the others follow. Their bits are rotated left by one, so that the whole
exponent is in one byte, and the sign is with the incompressible end of the fraction.

Deflate (RFC 1951) is in Python's standard library and has not changed since 1996. docs/encodings.md
compares it with others on real updates.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from struct import Struct
from typing import Literal, cast

import numpy as np
from numpy.typing import NDArray

from testbed.errors import AlgorithmError
from testbed.payloads.base import VALUE_BYTES, Array, Packable, Payload

Encoding = Literal["raw", "packed", "packed16"]

FLOAT16_LARGEST = 65504.0
_LENGTH = Struct("<I")
_LEVEL, _RAW_DEFLATE = 6, -15
_PACKED_BYTES = {"packed": VALUE_BYTES, "packed16": 2}

Words = NDArray[np.unsignedinteger]


def as_sent(payload: Payload, encoding: Encoding) -> tuple[Payload, int]:
    """Return the payload as the server half receives it, and its number of saturated values.

    ``packed16`` rounds to float16. A finite value beyond its range is clipped and counts as
    saturated; values that round to zero are omitted if the payload has indices.

    Raises:
        AlgorithmError: a payload of this kind cannot be packed.
    """
    if encoding == "raw":
        return payload, 0
    if not isinstance(payload, Packable):
        raise AlgorithmError(
            f"a {type(payload).__name__} payload cannot be packed, and the encoding is {encoding}.",
            hint="Leave `encoding` out of the scenario.",
        )
    if encoding == "packed":
        return payload, 0
    values = payload.arrays[-1]
    with np.errstate(over="ignore"):
        halves = values.astype(np.float16)
    beyond = np.isinf(halves) & np.isfinite(values)
    halves[beyond] = np.copysign(np.float16(FLOAT16_LARGEST), values[beyond])
    return payload.with_values(halves.astype(np.float32)), int(beyond.sum())


def size(payload: Payload, encoding: Encoding) -> int:
    """Return the bytes of a payload in this encoding; it must be the result of ``as_sent``."""
    return payload.size if encoding == "raw" else len(pack(payload, value_bytes(encoding)))


def value_bytes(encoding: Encoding) -> int:
    """Return the bytes per value before packing."""
    return _PACKED_BYTES[encoding]


def pack(payload: Payload, value_bytes: int) -> bytes:
    """Pack a payload: all planes of all arrays, each prefixed by its length.

    Args:
        payload: its values must be exact in float16 if they are to take two bytes.
        value_bytes: 4, or 2 for float16.
    """
    parts: list[bytes] = []
    for plane in planes_of(payload, value_bytes):
        deflate = zlib.compressobj(_LEVEL, zlib.DEFLATED, _RAW_DEFLATE)
        deflated = deflate.compress(plane) + deflate.flush()
        kept = min(plane, deflated, key=len)  # a plane of full length is stored as is
        parts += (_LENGTH.pack(len(kept)), kept)
    return b"".join(parts)


def planes_of(payload: Payload, value_bytes: int) -> Iterator[bytes]:
    """Yield all planes of all arrays, the highest bytes of an array first."""
    for array, kind in zip(payload.arrays, payload.TYPES, strict=True):
        if kind == "<i4":
            words = _differences(array)
        else:
            words = _turned(array, value_bytes)
            there = words != 0
            yield np.packbits(there).tobytes()
            words = words[there]
        width = words.dtype.itemsize
        rows = words.astype(f">u{width}").view(np.uint8).reshape(-1, width)
        yield from (rows[:, place].tobytes() for place in range(width))


def unpack(kind: type[Payload], data: memoryview, *, entries: int, value_bytes: int) -> Payload:
    """Unpack the output of ``pack``; allocates nothing larger than ``entries`` numbers.

    Raises:
        ValueError: the bytes are not a packed payload of this kind.
    """
    planes = _parts(data)
    arrays: list[Array] = []
    for type_ in kind.TYPES:
        if type_ == "<i4":
            differences = _words(planes, entries, 4)
            arrays.append(np.cumsum(differences, dtype=np.uint32).view(np.int32))
            continue
        bits = np.frombuffer(_inflated(next(planes, None), -(-entries // 8)), np.uint8)
        there = np.unpackbits(bits, count=entries).view(np.bool_)
        words = np.zeros(entries, f"<u{value_bytes}")
        words[there] = _words(planes, int(there.sum()), value_bytes)
        turned = (words >> 1) | (words << (8 * value_bytes - 1))
        arrays.append(turned.view(f"<f{value_bytes}").astype(np.float32, copy=False))
    if next(planes, None) is not None:
        raise ValueError("bytes after the last plane")
    return kind.of(arrays)


def _words(planes: Iterator[memoryview], count: int, width: int) -> Words:
    """Read ``count`` numbers from the next planes."""
    rows = np.empty((count, width), np.uint8)
    for place in range(width):
        rows[:, place] = np.frombuffer(_inflated(next(planes, None), count), np.uint8)
    return rows.reshape(-1).view(f">u{width}").astype(f"<u{width}")


def _differences(indices: Array) -> Words:
    """Return the differences between successive indices, modulo 2^32; the first is unchanged."""
    words: Words = np.ascontiguousarray(indices, "<i4").view("<u4")
    return np.diff(words, prepend=np.uint32(0))


def _turned(values: Array, width: int) -> Words:
    """Return the bits of each value, rotated so that the sign is last."""
    bits: Words = np.ascontiguousarray(values, f"<f{width}").view(f"<u{width}")
    return cast(Words, (bits << 1) | (bits >> (8 * width - 1)))


def _parts(data: memoryview) -> Iterator[memoryview]:
    """Yield the bytes behind each length."""
    position = 0
    while position < len(data):
        start = position + _LENGTH.size
        if start > len(data):
            raise ValueError("the bytes end inside a length")
        position = start + _LENGTH.unpack_from(data, position)[0]
        if position > len(data):
            raise ValueError(f"a plane ends {position - len(data)} bytes beyond the payload")
        yield data[start:position]


def _inflated(plane: memoryview | None, length: int) -> bytes | memoryview:
    """Inflate a plane to ``length`` bytes; a plane of that length was not deflated."""
    if plane is None or len(plane) > length:
        found = "no plane" if plane is None else f"a plane of {len(plane)} bytes"
        raise ValueError(f"{found}, expected 1 to {length} bytes")
    if len(plane) == length:
        return plane
    inflate = zlib.decompressobj(_RAW_DEFLATE)
    try:
        made = inflate.decompress(plane, length + 1)  # at most one byte more than allowed
    except zlib.error as error:
        raise ValueError(f"a plane is not deflated: {error}") from None
    if len(made) != length or not inflate.eof or inflate.unused_data:
        raise ValueError(f"a plane does not inflate to {length} bytes")
    return made
