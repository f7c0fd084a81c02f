"""Frames: a message, and behind it the arrays of its payload, which are neither parsed nor copied.

A frame is the length of the message (uint32, little-endian), the message, and the arrays.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import TypeVar

from google.protobuf.message import DecodeError, Message

from testbed.errors import RejectedError

LENGTH = struct.Struct("<I")

M = TypeVar("M", bound=Message)


class MalformedError(RejectedError):
    """Bytes that are not a valid message, or values that are impossible."""


class OversizedError(RejectedError):
    """A message longer than any of the model's messages."""


def parse(kind: type[M], data: bytes) -> M:
    """Decode a message.

    Raises:
        MalformedError: the bytes are not such a message.
    """
    try:
        return kind.FromString(data)
    except DecodeError as error:
        raise MalformedError(f"not a {kind.__name__}: {error}") from None


def join(head: Message, arrays: Iterable[bytes | memoryview]) -> bytes:
    """Encode a frame, with one copy of the arrays."""
    encoded = head.SerializeToString()
    return b"".join([LENGTH.pack(len(encoded)), encoded, *arrays])


def split(kind: type[M], frame: bytes) -> tuple[M, memoryview]:
    """Decode the message of a frame; return it and a view of the arrays.

    Raises:
        MalformedError: the bytes are not such a frame.
    """
    view = memoryview(frame)
    end = LENGTH.size + LENGTH.unpack_from(view)[0] if len(view) >= LENGTH.size else LENGTH.size
    if end > len(view):
        raise MalformedError(f"a frame of {len(view)} bytes, expected at least {end}")
    return parse(kind, bytes(view[LENGTH.size : end])), view[end:]
