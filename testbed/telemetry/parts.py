"""The applied updates as Parquet files, each closed and put in place every few seconds.

A Parquet file without its footer cannot be read, so a run that is killed would lose everything if
it wrote only one. A part appears under its name when it is complete; a killed run loses the last.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from testbed.errors import TestbedError
from testbed.events.rows import UPDATE, Rows, conform
from testbed.telemetry.files import replacing
from testbed.telemetry.folder import FORMAT

if TYPE_CHECKING:
    import pyarrow

PART_ROWS = 10_000
PART_SECONDS = 5.0


@dataclass
class PartWriter:
    """Collects rows and writes them out as parts, after those that the folder holds already."""

    folder: Path
    _pending: list[Rows] = field(default_factory=list)
    _opened: float = 0.0

    def __post_init__(self) -> None:
        self._next = len(part_paths(self.folder))

    def add(self, rows: Rows, *, now: float) -> None:
        """Take rows over in the order of their application, at ``now`` steady seconds.

        None of them just lets time pass.
        """
        if not self._pending:
            self._opened = now
        if len(rows):
            self._pending.append(rows)
        while sum(map(len, self._pending)) >= PART_ROWS:
            full = np.concatenate(self._pending)
            self._write(full[:PART_ROWS])
            self._pending = [full[PART_ROWS:]] if len(full) > PART_ROWS else []
            self._opened = now
        if self._pending and now - self._opened >= PART_SECONDS:
            self.close()

    def close(self) -> None:
        """Write out what is pending; more may be added afterwards."""
        if self._pending:
            self._write(np.concatenate(self._pending))
            self._pending = []

    def cut(self, version: int) -> None:
        """Take out the updates that were applied at this version or later.

        The last parts are removed before the one that is cut is replaced: what is left is always
        the beginning.
        """
        self.close()
        for path in reversed(part_paths(self.folder)):
            rows = _read_part(path)
            kept = rows[rows["version_applied"] < version]
            if len(kept) == len(rows):
                return
            self._next -= 1
            path.unlink()
            if len(kept):
                self._write(kept)
                return

    def _write(self, rows: Rows) -> None:
        import pyarrow.parquet

        path = self.folder / f"part-{self._next:04d}.parquet"
        with replacing(path) as fresh:
            pyarrow.parquet.write_table(_table(rows), fresh, compression="zstd")
        self._next += 1


def part_paths(folder: Path) -> list[Path]:
    """The complete parts, in order.

    Raises:
        TestbedError: one is missing in between.
    """
    parts = folder.glob("part-[0-9]*.parquet")
    numbered = {int(path.stem.removeprefix("part-")): path for path in parts}
    for number in range(len(numbered)):
        if number not in numbered:
            missing = folder / f"part-{number:04d}.parquet"
            raise _damaged(missing, "is missing, while later ones are there")
    return [numbered[number] for number in range(len(numbered))]


def count_rows(folder: Path) -> int:
    """Rows in all complete parts.

    Raises:
        TestbedError: a part is missing or damaged; names it.
    """
    import pyarrow
    import pyarrow.parquet

    total = 0
    for path in part_paths(folder):
        try:
            total += pyarrow.parquet.read_metadata(path).num_rows
        except (pyarrow.ArrowException, OSError) as error:
            raise _damaged(path, f"cannot be read ({_first_line(error)})") from None
    return total


def read_rows(folder: Path) -> Rows:
    """All rows of all complete parts, shape (n,), dtype ``UPDATE``.

    Raises:
        TestbedError: a part is missing or damaged; names it.
    """
    parts = [_read_part(path) for path in part_paths(folder)]
    return np.concatenate(parts) if parts else np.empty(0, UPDATE)


def _read_part(path: Path) -> Rows:
    import pyarrow
    import pyarrow.parquet

    try:
        table = pyarrow.parquet.read_table(path)
        stored = {name: table.column(name).to_numpy() for name in table.column_names}
        return conform(stored, table.num_rows)
    except KeyError as error:
        raise _damaged(path, f"has no column {error}") from None
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        raise _damaged(path, f"cannot be read ({_first_line(error)})") from None


def _table(rows: Rows) -> pyarrow.Table:
    """The rows as an Arrow table; the types are those of ``UPDATE``, not guessed from values."""
    import pyarrow

    fields = [
        pyarrow.field(name, pyarrow.from_numpy_dtype(UPDATE[name]), nullable=False)
        for name in UPDATE.names or ()
    ]
    schema = pyarrow.schema(fields, metadata={"format": str(FORMAT)})
    columns = []
    for one in fields:  # as it lies in memory; pyarrow.array would import pandas to look at it
        values = pyarrow.py_buffer(np.ascontiguousarray(rows[one.name]))
        columns.append(pyarrow.Array.from_buffers(one.type, len(rows), [None, values]))
    return pyarrow.Table.from_arrays(columns, schema=schema)


def _damaged(path: Path, what: str) -> TestbedError:
    return TestbedError(
        f"{path}: the part {what}.",
        hint="Delete it and every later part; `testbed report` restores them from ps/updates.bin.",
    )


def _first_line(error: BaseException) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
