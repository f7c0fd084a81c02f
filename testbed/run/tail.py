"""Reads files that others are still writing, line by line."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class LineTail:
    """The lines that were written since the last look.

    Attributes:
        path: a file that only grows; it need not exist yet.
    """

    path: Path
    _offset: int = 0
    _rest: bytes = field(default=b"")

    def read(self, *, whole: bool = False) -> list[bytes]:
        """The complete lines that are new.

        A line still being written is kept for the next call; with ``whole`` it is returned too.
        """
        try:
            with self.path.open("rb") as file:
                file.seek(self._offset)
                data = file.read()
        except FileNotFoundError:
            return []
        self._offset += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        if whole and self._rest:
            lines.append(self._rest)
            self._rest = b""
        return lines
