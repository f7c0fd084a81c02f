"""Files of a run folder: written atomically, followed as they grow, CSV, read with checks."""

from __future__ import annotations

import csv
import errno
import json
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from reprlib import repr as shortened
from typing import Annotated, Any, TextIO

from pydantic import AfterValidator, ValidationError

from testbed.errors import DataError, HostError
from testbed.telemetry.ps_events import Evaluated
from testbed.telemetry.untrusted import SpoiledError, open_untrusted, read_on

LARGEST_RECORD = 128 * 2**20
"""Maximum bytes of a node's JSON-lines log: some 500,000 events."""

LONGEST_LINE = 2**18
"""Maximum bytes of one line: several times the length of a list of all possible workers' names."""

LARGEST_STATE = 2**24
"""Maximum bytes of a JSON file in a run folder, which may belong to another user."""


NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
OF_DISK = (*NO_SPACE, errno.EROFS, errno.EIO)


def is_gone(path: Path) -> bool:
    """Whether a path does not exist any more; an inaccessible path may exist."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return False


def open_to_nodes(path: Path) -> None:
    """Let nodes, which have their own uids, read a part of a run folder regardless of the umask.

    The run folder itself keeps the mode set by the umask, which decides about other users.
    """
    path.chmod(0o755 if path.is_dir() else 0o644)


def moment(seconds: float) -> str:
    """Format seconds since 1970 as UTC in ISO 8601, to the millisecond."""
    text = datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")


def _timestamp(text: str) -> str:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        raise ValueError("a time in ISO 8601, like 2026-01-31T12:00:00.000Z") from None
    return text


Timestamp = Annotated[str, AfterValidator(_timestamp)]
"""A time as ``moment`` formats it, in a file that pydantic reads."""


@dataclass
class LineReader:
    """Reads the lines of a growing file as they arrive; the file need not exist yet."""

    path: Path  # the file
    node: str = ""  # the untrusted node that writes the file; empty for the controller
    _offset: int = 0
    _rest: bytes = b""

    def read(self, *, whole: bool = False) -> list[bytes]:
        """Return the new complete lines.

        An incomplete line is kept for the next call; with ``whole`` it is returned too.

        Raises:
            SpoiledError: a node has written too much, or something that is not lines; names it.
        """
        try:
            data = self._read()
        except FileNotFoundError:
            return []
        self._offset += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        if self.node:
            self._check(lines)
        if whole and self._rest:
            lines.append(self._rest)
            self._rest = b""
        return lines

    def _read(self) -> bytes:
        if not self.node:
            with self.path.open("rb") as file:
                file.seek(self._offset)
                return file.read()
        with open_untrusted(self.path, node=self.node) as written:
            written.seek(self._offset)
            return read_on(written, self.path, node=self.node, most=LARGEST_RECORD)

    def _check(self, lines: list[bytes]) -> None:
        rest = self._rest.rstrip(b"\0")  # a power loss leaves these in place of lines
        longest = max(map(len, [*lines, rest]))
        if longest > LONGEST_LINE:
            what = f"a line of {longest:,} bytes, expected at most {LONGEST_LINE:,}"
            raise SpoiledError(self.path, self.node, what)


@contextmanager
def replacing(path: Path, *, lasting: bool = True) -> Iterator[Path]:
    """Replace a file atomically: a reader, or a crash, sees the old content or the new.

    A file that is not ``lasting`` may be lost on power failure; waiting for a disk takes 5 ms.

    Yields the path to write the new content to. It is deleted on failure: on a full disk it would
    take the space needed to record how the run ended. An error of the system names ``path``, not
    the temporary file.
    """
    fresh = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield fresh
        if lasting:
            with fresh.open("rb") as file:
                os.fsync(file.fileno())
        fresh.rename(path)
    except BaseException as error:
        if isinstance(error, OSError) and (
            error.filename == str(fresh) or (error.filename is None and error.errno in OF_DISK)
        ):
            error.filename = str(path)
        with suppress(OSError):
            fresh.unlink()
        raise
    if not lasting:
        return
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write a whole file; see ``replacing``."""
    with replacing(path) as fresh:
        fresh.write_bytes(content.encode() if isinstance(content, str) else content)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Report that the user's output cannot be written; other files' errors pass unchanged.

    Args:
        path: the file or folder that the user asked for.

    Raises:
        HostError: the system refuses to write it; names the path and the reason.
    """
    try:
        yield
    except OSError as error:
        if isinstance(error.filename, str) and not Path(error.filename).is_relative_to(path):
            raise
        hint = "Free disk space, or choose" if error.errno in NO_SPACE else "Choose"
        message = f"{path}: it cannot be written: {error.strerror or error}."
        raise HostError(message, hint=f"{hint} another path.") from None


def read_json(path: Path) -> dict[str, Any] | None:
    """Read the object in a JSON file; None if the file does not exist.

    Raises:
        DataError: the file holds something else.
    """
    try:
        content = json.loads(read_bounded(path, most=LARGEST_STATE))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: not JSON ({error}).", hint="The file is damaged.") from None
    if not isinstance(content, dict):
        raise DataError(f"{path}: not a JSON object.", hint="The file is damaged.")
    return content


def first_mistake(error: ValidationError) -> str:
    """Return where a file's content has the wrong type, what was found and what was expected."""
    first = error.errors()[0]
    where = ".".join(map(str, first["loc"]))
    if first["type"] == "missing":
        return f"{where} is missing"
    expected = first["msg"].removeprefix("Value error, ").removeprefix("Input should be ")
    return f"{where}: found {shortened(first['input'])}, expected {expected}"


def read_bounded(path: Path, *, most: int, flags: int = 0) -> bytes:
    """Read a regular file, possibly another user's; a pipe is not waited for.

    Args:
        path: the file.
        most: maximum bytes.
        flags: for opening it, in addition, such as ``O_NOFOLLOW``.

    Raises:
        OSError: it cannot be opened.
        ValueError: it is no such file.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | flags)
    try:
        found = os.fstat(descriptor)
        if stat.S_ISREG(found.st_mode) and found.st_size <= most:
            with open(descriptor, "rb", closefd=False) as file:
                return file.read(most)
    finally:
        os.close(descriptor)
    if stat.S_ISREG(found.st_mode):
        raise ValueError(f"{found.st_size:,} bytes, expected at most {most:,}")
    kind = "a folder" if stat.S_ISDIR(found.st_mode) else "a pipe or a device"
    raise ValueError(f"{kind}, expected a regular file")


@dataclass
class CsvTable:
    """A CSV file that grows by whole lines, each on disk before the next is written.

    A file started by another version keeps its columns.
    """

    path: Path  # the file; its header is written when the table is opened
    # names of its columns; by default those of the first row, with which the header is written
    columns: Sequence[str] = ()
    _file: TextIO = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._file = self.path.open("a", buffering=1, newline="", encoding="utf-8")
        self._rows = csv.writer(self._file, lineterminator="\n")
        self._kept = self.columns
        if self._file.tell() == 0:
            self._write_header(self.columns)
        else:
            self._kept = LineReader(self.path).read()[0].decode().split(",")

    def _write_header(self, columns: Sequence[str]) -> None:
        self._kept = columns
        if columns:
            self._rows.writerow(columns)

    def append(self, row: Mapping[str, Any]) -> None:
        """Append a row; missing values and None stay empty.

        A value in a column that the first row did not have is dropped.

        Raises:
            ValueError: the row has an unknown column, and the table was opened with its columns.
        """
        if not self._kept:
            self._write_header(tuple(row))
        unknown = row.keys() - set(self.columns)
        if unknown and self.columns:
            raise ValueError(f"{self.path.name} has no column {', '.join(sorted(unknown))}")
        self._rows.writerow([_text(row.get(name)) for name in self._kept])

    def cut(self, column: str, most: int) -> None:
        """Remove the rows with a larger value in a column of integers."""
        if not self._kept:
            return
        place = list(self._kept).index(column)
        header, *rows = LineReader(self.path).read()
        kept = [row for row in rows if int(row.split(b",")[place]) <= most]
        self._file.close()
        write_atomically(self.path, b"".join(line + b"\n" for line in (header, *kept)))
        self.__post_init__()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _text(value: Any) -> str:
    """Format a value for the file: shortest exact numbers, lower-case booleans."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(float(value)) if isinstance(value, float) else str(value)


def evaluation_row(event: Evaluated, *, time_scale: float) -> dict[str, Any]:
    """Convert an evaluation to a row of ``evaluations.csv``, in the order of its columns."""
    written = dict(event.written())
    time = written.pop("time_seconds")
    return {"time_seconds": time, "wall_seconds": time / time_scale, **written}


def drop_torn_line(path: Path) -> None:
    """Remove an incomplete last line, so that the file can be appended to again."""
    whole = sum(len(line) + 1 for line in LineReader(path).read())
    if path.exists() and path.stat().st_size > whole:
        with path.open("r+b") as file:
            file.truncate(whole)
