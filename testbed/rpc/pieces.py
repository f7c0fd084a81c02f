"""Long messages in pieces, so that no connection has to buffer a whole one.

A piece is a message of the contract: the first has the total length, each has a part of the data,
which is written to its final place, so receiving a message takes its own size of memory and that of
a few pieces. Memory is allocated as pieces arrive, regardless of the announced length, and a length
above that of the model's messages is refused.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from typing import cast

from testbed.rpc.wire import (
    MalformedError,
    OversizedError,
    bytes_fields,
    header,
    number_field,
    varint_fields,
)

PIECE_BYTES = 2**20
ENVELOPE_BYTES = 64
"""The maximum overhead of a piece."""

TOTAL, DATA = 1, 2


def pieces(message: bytes) -> Iterator[bytes]:
    """Split a message into pieces."""
    view = memoryview(message)
    before = number_field(TOTAL, len(message))
    for start in range(0, max(1, len(message)), PIECE_BYTES):
        part = view[start : start + PIECE_BYTES]
        yield b"".join([before, header(DATA, len(part)), part])
        before = b""


class Assembly:
    """Reassembles a message from its pieces.

    Attributes:
        longest: maximum length of the message, in bytes.
    """

    def __init__(self, longest: int) -> None:
        self.longest = longest
        self._message: bytearray | mmap.mmap | None = None
        self._filled = 0

    def add(self, piece: bytes) -> bool:
        """Add the next piece; return whether it was the last.

        Raises:
            MalformedError: it is not a piece, or one too many.
            OversizedError: the message would be too long.
        """
        view = memoryview(piece)
        part = bytes_fields(view, (DATA,)).get(DATA, view[:0])
        if self._message is None:
            self._message = self._begin(view)
        end = self._filled + len(part)
        if end > len(self._message) or (not part and self._message):
            found = f"a piece of {len(part)} bytes after {self._filled}"
            raise MalformedError(f"{found} of a message of {len(self._message)}")
        self._message[self._filled : end] = part
        self._filled = end
        return end == len(self._message)

    def whole(self) -> bytes:
        """Return the whole message.

        Raises:
            MalformedError: it is incomplete.
        """
        if self._message is None or self._filled < len(self._message):
            raise MalformedError(f"the pieces end after {self._filled} bytes, too early")
        return cast(bytes, self._message)  # no longer modified: a copy would double the memory

    def _begin(self, first: memoryview) -> bytearray | mmap.mmap:
        total = varint_fields(first, (TOTAL,)).get(TOTAL, 0)
        if total > self.longest:
            raise OversizedError(f"a message of {total} bytes, expected at most {self.longest}")
        if total <= PIECE_BYTES:
            return bytearray(total)
        return mmap.mmap(-1, total)  # allocates pages on write, and frees them at once
