"""The parameter server's record of applied updates: fixed-size rows, append-only.

Readers on the same host follow it while the run is active, and it preserves the last seconds if all
other processes are killed. An incomplete row is not read.

The rows follow a header in numpy's .npy format, which names their columns, but does not contain
their number.
"""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.lib import format as npy

from testbed.errors import DataError, TestbedError
from testbed.telemetry.rows import STREAMED, UPDATE, Rows, conform
from testbed.telemetry.untrusted import SpoiledError, open_untrusted

WRITER = "ps"
CHUNK_ROWS = 2**16
"""Maximum number of rows in one read, whatever the size of the file. A row has about 150 bytes."""

MOST = 2**62
"""Maximum of a valid value in any column."""


class SpoolWriter:
    """Appends rows to a file; one per run, in the process that applies updates.

    Rows are buffered in memory before they are written. If ``streamed`` is set, they have the
    columns of streams.
    """

    def __init__(self, path: Path, *, rows: int = 256, streamed: bool = False) -> None:
        self.streamed = streamed
        self._file = path.open("ab", buffering=0)
        self._rows = np.zeros(rows, STREAMED if streamed else UPDATE)
        self._filled = 0
        if not self._file.tell():
            self._file.write(header(self._rows.dtype))

    def append(self, row: tuple[Any, ...]) -> None:
        """Add one row."""
        self._rows[self._filled] = row
        self._filled += 1
        if self._filled == len(self._rows):
            self.flush()

    def flush(self) -> None:
        """Pass all buffered rows to the kernel."""
        data = memoryview(self._rows[: self._filled].tobytes())
        while data:
            data = data[self._file.write(data) :]
        self._filled = 0

    def close(self) -> None:
        """Flush and close. Idempotent."""
        if not self._file.closed:
            self.flush()
            self._file.close()


class SpoolReader:
    """Follows a spool that may still grow or not exist yet. Its writer is not trusted.

    Args:
        path: the spool.
        workers: number of workers; None if unknown.
        over: whether the writer has ended. A power loss leaves zeros in place of rows: the record
            ends before them.
    """

    def __init__(self, path: Path, *, workers: int | None = None, over: bool = False) -> None:
        self._path = path
        self._workers = MOST if workers is None else workers
        self._over = over
        self._offset = 0
        self._layout: np.dtype[Any] | None = None

    def read(self) -> Rows:
        """Return the complete rows that are new since the last call, shape (rows,), see ``Rows``.

        At most CHUNK_ROWS; no rows if there are no more for now.

        Raises:
            TestbedError: another version wrote it, without a required column.
            SpoiledError: it is not a spool, or a row is invalid; names it.
        """
        try:
            with open_untrusted(self._path, node=WRITER) as file:
                if self._layout is None:
                    self._layout = self._read_layout(file)
                    self._offset = file.tell()
                if self._layout is None:
                    return np.empty(0, UPDATE)
                file.seek(self._offset)
                data = file.read(CHUNK_ROWS * self._layout.itemsize)
        except FileNotFoundError:
            return np.empty(0, UPDATE)
        layout = self._layout
        stored = np.frombuffer(data[: len(data) - len(data) % layout.itemsize], layout)
        rows = self._check(self._conform(stored))
        self._offset += len(rows) * layout.itemsize
        return rows

    def _conform(self, stored: Rows) -> Rows:
        layout = stored.dtype
        if layout in (UPDATE, STREAMED):
            return stored
        try:
            with np.errstate(invalid="ignore"):  # invalid numbers are checked later
                return conform({name: stored[name] for name in layout.names or ()}, len(stored))
        except KeyError as error:
            raise TestbedError(
                f"{self._path}: found no column {error}.",
                hint="Read the run with the version of testbed that created it, or a newer one.",
            ) from None

    def _check(self, rows: Rows) -> Rows:
        """Return the valid rows, up to the end of the record."""
        least, most = {"sequence": 1}, {"worker": self._workers - 1}
        unsound = {
            name: ~((rows[name] >= least.get(name, 0)) & (rows[name] <= most.get(name, MOST)))
            for name in rows.dtype.names or ()
        }
        wrong = np.logical_or.reduce([*unsound.values()])
        if not wrong.any():
            return rows
        first = int(np.argmax(wrong))
        if self._over and not rows[first]["sequence"] and not rows[first]["samples"]:
            return rows[:first]
        found = ", ".join(f"{name} {rows[first][name]}" for name in unsound if unsound[name][first])
        raise SpoiledError(self._path, WRITER, f"an impossible update ({found})")

    def rewind(self, *, rows: int) -> None:
        """Continue after the first rows: the others were cut off and are written again.

        If not even these were read, nothing changes.
        """
        if self._layout is not None:
            self._offset = min(self._offset, self.begin + rows * self.row_bytes)

    @property
    def begin(self) -> int:
        """Offset of the rows in the file."""
        return 0 if self._layout is None else len(header(self._layout))

    @property
    def row_bytes(self) -> int:
        """Size of a row; 0 before the first read."""
        return 0 if self._layout is None else self._layout.itemsize

    def _read_layout(self, file: BinaryIO) -> np.dtype[Any] | None:
        """Read the layout of the rows, which follow it in the file; None if there are none."""
        begin = file.read(npy.MAGIC_LEN)
        if not any(begin):  # empty, or zeros left by a power loss
            return None
        if not begin.startswith(npy.MAGIC_PREFIX):
            raise SpoiledError(self._path, WRITER, "no record of updates")
        file.seek(0)
        try:
            npy.read_magic(file)
            layout = npy.read_array_header_1_0(file)[2]
            if not layout.names or any(layout[name].kind not in "biuf" for name in layout.names):
                raise ValueError(f"rows of {layout}")
            return layout
        except (ValueError, TypeError, MemoryError, RecursionError) as error:
            raise TestbedError(
                f"{self._path}: found a header that cannot be read ({error}), expected one of "
                "numpy's format.",
                hint="The file is damaged; move it elsewhere to read the controller's records.",
            ) from None


def bytes_of_rows(path: Path, rows: int) -> int:
    """Return the size of a spool up to the end of its first rows."""
    with open_untrusted(path, node=WRITER) as file:
        layout = SpoolReader(path)._read_layout(file)
        return 0 if layout is None else file.tell() + rows * layout.itemsize


def cut_spool(path: Path, *, rows: int) -> int:
    """Keep the first rows of a spool; return how many were removed.

    Raises:
        DataError: there are fewer rows.
    """
    reader, found = SpoolReader(path), 0
    while new := len(reader.read()):
        found += new
    if found < rows:
        raise DataError(
            f"{path}: found {found:,} updates, expected at least the {rows:,} of the checkpoint.",
            hint="The file is damaged.",
        )
    with path.open("r+b") as file:
        file.truncate(reader.begin + rows * reader.row_bytes)
    return found - rows


def header(layout: np.dtype[Any] = UPDATE) -> bytes:
    """Return the header of rows with this layout."""
    file = BytesIO()
    npy.write_array_header_1_0(file, {"descr": layout.descr, "fortran_order": False, "shape": (0,)})
    return file.getvalue()
