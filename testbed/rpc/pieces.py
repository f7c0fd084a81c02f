"""Long messages in pieces, so that no connection has to hold one whole before it is read.

A piece is a message of the contract: the first says how long the whole is, each brings a part. What
comes is written where it will stay, so that taking in a message takes its own size of memory and
that of a few pieces. Memory is taken as the pieces arrive, whatever length the first one announces,
and a length above that of the model's messages is refused.
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
"""What a piece is longer than its part, at most."""

TOTAL, DATA = 1, 2


def pieces(message: bytes) -> Iterator[bytes]:
    """The pieces of a message, one after the other."""
    view = memoryview(message)
    before = number_field(TOTAL, len(message))
    for start in range(0, max(1, len(message)), PIECE_BYTES):
        part = view[start : start + PIECE_BYTES]
        yield b"".join([before, header(DATA, len(part)), part])
        before = b""


class Assembly:
    """A message that is put together of its pieces.

    Attributes:
        longest: what it may be long, in bytes.
    """

    def __init__(self, longest: int) -> None:
        self.longest = longest
        self._message: bytearray | mmap.mmap | None = None
        self._filled = 0

    def add(self, piece: bytes) -> bool:
        """Take the next piece; returns whether it was the last.

        Raises:
            MalformedError: it is no piece, or one too many.
            OversizedError: the message would be too long.
        """
        view = memoryview(piece)
        part = bytes_fields(view, (DATA,)).get(DATA, view[:0])
        if self._message is None:
            self._message = self._begin(view)
        end = self._filled + len(part)
        if end > len(self._message) or (not part and self._message):
            found = f"a piece of {len(part)} bytes behind {self._filled}"
            raise MalformedError(f"{found} of a message of {len(self._message)}")
        self._message[self._filled : end] = part
        self._filled = end
        return end == len(self._message)

    def whole(self) -> bytes:
        """The message.

        Raises:
            MalformedError: it is not complete.
        """
        if self._message is None or self._filled < len(self._message):
            raise MalformedError(f"the pieces end after {self._filled} bytes")
        return cast(bytes, self._message)  # which nobody changes any more: a copy would be as large

    def _begin(self, first: memoryview) -> bytearray | mmap.mmap:
        total = varint_fields(first, (TOTAL,)).get(TOTAL, 0)
        if total > self.longest:
            raise OversizedError(f"a message of {total} bytes, expected at most {self.longest}")
        if total <= PIECE_BYTES:
            return bytearray(total)
        return mmap.mmap(-1, total)  # takes a page when it is written, and goes back at once
