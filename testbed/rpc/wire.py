"""The part of the Protocol Buffers wire format needed to reach a bulk field without copying it.

A message is a sequence of fields, each a tag (number and wire type) and a value, and fields can be
removed from the bytes without affecting the others. So a bulk field is cut out here, as a view, and
the rest is small enough for the generated classes, which also handle unknown fields.

See https://protobuf.dev/programming-guides/encoding/.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple

from testbed.errors import RejectedError

VARINT, FIXED64, BYTES, GROUP_START, GROUP_END, FIXED32 = range(6)
_FIXED_BYTES = {FIXED64: 8, FIXED32: 4}
_LARGEST_TAG = 2**32 - 1
_LONGEST_VARINT = 10  # bytes of a 64-bit number


class MalformedError(RejectedError):
    """Bytes that are not a valid message, or values that are impossible."""


class OversizedError(RejectedError):
    """A message longer than any of the model's messages."""


class Field(NamedTuple):
    """One field of a message; positions are offsets in the message.

    Attributes:
        kind: its wire type.
        start: offset of its tag.
        value: offset of its value; for a ``BYTES`` field, after the length.
        end: offset of the next field.
    """

    number: int
    kind: int
    start: int
    value: int
    end: int


def fields(message: memoryview) -> Iterator[Field]:
    """Yield the fields of a message, in order; a group is one field.

    Raises:
        MalformedError: the bytes are not a message: a field ends early, or a tag is impossible.
    """
    position = 0
    while position < len(message):
        field = _field(message, position)
        if field.kind == GROUP_END:
            raise MalformedError(f"byte {field.start} ends a group that was not started")
        yield field
        position = field.end


def cut(message: bytes, number: int) -> tuple[bytes, memoryview | None]:
    """Cut the field ``number``, a submessage, out of a message.

    Returns:
        The message without it; and its value, a view of ``message``, or None if it is missing.

    Raises:
        MalformedError: see ``fields``; or the field occurs twice.
    """
    view = memoryview(message)
    field = _find(view, (number,)).get(number)
    if field is None:
        return bytes(message), None
    rest = bytes(message[: field.start] + message[field.end :])
    return rest, view[field.value : field.end]


def bytes_fields(message: memoryview, numbers: Collection[int]) -> dict[int, memoryview]:
    """Return the values of these ``BYTES`` fields of a message; skip all others.

    Raises:
        MalformedError: see ``fields``; or a field occurs twice.
    """
    found = _find(message, numbers)
    return {number: message[field.value : field.end] for number, field in found.items()}


def varint_fields(message: memoryview, numbers: Collection[int]) -> dict[int, int]:
    """Return the numbers in these ``VARINT`` fields of a message, the last of each.

    Raises:
        MalformedError: see ``fields``.
    """
    return {
        field.number: _read_varint(message, field.value)[0]
        for field in fields(message)
        if field.kind == VARINT and field.number in numbers
    }


def header(number: int, length: int) -> bytes:
    """Encode the tag and length of a ``BYTES`` field."""
    return varint(number << 3 | BYTES) + varint(length)


def number_field(number: int, value: int) -> bytes:
    """Encode a field with a non-negative number; appended to a message, it becomes its field."""
    return varint(number << 3 | VARINT) + varint(value)


def varint(value: int) -> bytes:
    """Encode a non-negative number in groups of seven bits, the lowest first."""
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _find(message: memoryview, numbers: Collection[int]) -> dict[int, Field]:
    """Find the ``BYTES`` fields of these numbers, each at most once."""
    found: dict[int, Field] = {}
    position, length = 0, len(message)
    while position < length:
        # Every message passes through here, and most fields are short numbers: avoid calls.
        tag = message[position]
        if 8 <= tag < 0x80:
            kind = tag & 7
            if kind == VARINT:
                end = position + 1
                while end < length and message[end] >= 0x80:
                    end += 1
                if end < length and end - position <= _LONGEST_VARINT:
                    position = end + 1
                    continue
            elif kind == FIXED64 and position + 9 <= length:
                position += 9
                continue
        field = _field(message, position)
        if field.kind == GROUP_END:
            raise MalformedError(f"byte {field.start} ends a group that was not started")
        position = field.end
        if field.kind == BYTES and field.number in numbers:
            if field.number in found:
                raise MalformedError(f"field {field.number} occurs twice")
            found[field.number] = field
    return found


def _field(message: memoryview, start: int) -> Field:
    tag, value = _read_varint(message, start)
    number, kind = tag >> 3, tag & 7
    if number == 0 or tag > _LARGEST_TAG or kind > FIXED32:
        raise MalformedError(f"byte {start} does not start a field")
    if kind == VARINT:
        end = _read_varint(message, value)[1]
    elif kind == BYTES:
        length, value = _read_varint(message, value)
        end = value + length
    elif kind == GROUP_START:
        end = _end_of_group(message, value, number=number)
    else:
        end = value + _FIXED_BYTES.get(kind, 0)
    if end > len(message):
        raise MalformedError(f"field {number} ends {end - len(message)} bytes after the message")
    return Field(number, kind, start, value, end)


def _end_of_group(message: memoryview, position: int, *, number: int) -> int:
    """Return the end of group ``number`` with fields from ``position`` on. Not recursive."""
    open_groups = [number]
    while open_groups:
        tag, value = _read_varint(message, position)
        if tag & 7 == GROUP_START:
            open_groups.append(tag >> 3)
            position = value
            continue
        field = _field(message, position)
        if field.kind == GROUP_END and field.number != open_groups.pop():
            raise MalformedError(f"byte {position} ends a group that is not open")
        position = field.end
    return position


def _read_varint(message: memoryview, position: int) -> tuple[int, int]:
    """Decode a number of up to 64 bits; return it and its end."""
    if position < len(message) and (byte := message[position]) < 0x80:
        return byte, position + 1  # the usual case
    value = 0
    for shift in range(0, 70, 7):
        if position >= len(message):
            raise MalformedError("the message ends inside a number")
        byte = message[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, position
    raise MalformedError(f"a number before byte {position} has more than 64 bits")
