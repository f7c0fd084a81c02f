"""Files of a run folder: written whole or not at all, followed as they grow, read with errors."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from testbed.errors import TestbedError


def moment(seconds: float) -> str:
    """Seconds since 1970 as UTC in ISO 8601, to the millisecond."""
    text = datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")


@dataclass
class LineReader:
    """The lines of a file that only grows, as they come; it need not exist yet."""

    path: Path
    _offset: int = 0
    _rest: bytes = b""

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


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Put a file in place so that a reader, or a crash, sees the old content or the new one.

    Yields the path to write the new content to. It is gone if that fails: on a full disk it would
    take the room that is needed to write down how the run ended.
    """
    fresh = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield fresh
        with fresh.open("rb") as file:
            os.fsync(file.fileno())
        fresh.rename(path)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write a whole file; see ``replacing``."""
    with replacing(path) as fresh:
        fresh.write_bytes(content.encode() if isinstance(content, str) else content)


def read_json(path: Path) -> dict[str, Any] | None:
    """The object in a JSON file, or None if there is no such file.

    Raises:
        TestbedError: the file holds something else.
    """
    try:
        content = json.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except ValueError as error:
        raise TestbedError(f"{path}: not JSON ({error}).", hint="The file is damaged.") from None
    if not isinstance(content, dict):
        raise TestbedError(f"{path}: not a JSON object.", hint="The file is damaged.")
    return content
