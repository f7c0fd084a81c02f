"""Long messages in pieces, so that no connection has to buffer a whole one.

The first piece begins with the length of the message (uint64, little-endian). Received data is
written to its final place, so receiving a message takes its own size of memory and that of a few
pieces. Memory is allocated as pieces arrive, regardless of the announced length, and a length above
that of the model's messages is refused.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from typing import cast

from testbed.rpc.wire import MalformedError, OversizedError

PIECE_BYTES = 2**20
TOTAL = struct.Struct("<Q")


def pieces(message: bytes) -> Iterator[bytes]:
    """Split a message into pieces."""
    view = memoryview(message)
    yield b"".join([TOTAL.pack(len(message)), view[:PIECE_BYTES]])
    for start in range(PIECE_BYTES, len(message), PIECE_BYTES):
        yield bytes(view[start : start + PIECE_BYTES])


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
        part = memoryview(piece)
        if self._message is None:
            self._message, part = self._begin(part), part[TOTAL.size :]
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
        if len(first) < TOTAL.size:
            raise MalformedError(f"a first piece of {len(first)} bytes, without a length")
        total: int = TOTAL.unpack_from(first)[0]
        if total > self.longest:
            raise OversizedError(f"a message of {total} bytes, expected at most {self.longest}")
        if total <= PIECE_BYTES:
            return bytearray(total)
        return mmap.mmap(-1, total)  # allocates pages on write, and frees them at once
