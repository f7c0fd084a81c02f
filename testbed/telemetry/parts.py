"""The applied updates as Parquet files, each completed every few seconds.

A Parquet file without its footer cannot be read, so a killed run would lose everything in a single
file. A part gets its name when it is complete; a killed run loses the last one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from testbed.errors import DataError
from testbed.telemetry.files import replacing
from testbed.telemetry.folder import FORMAT
from testbed.telemetry.rows import Rows, conform

if TYPE_CHECKING:
    import pyarrow

PART_ROWS = 10_000
PART_SECONDS = 5.0


@dataclass
class PartWriter:
    """Collects rows and writes them as parts, numbered after the existing parts of the folder.

    Attributes:
        folder: folder of the parts.
        least_rows: minimum number of rows of a part that is written because time has passed.
    """

    folder: Path
    least_rows: int = 1
    _pending: list[Rows] = field(default_factory=list)
    _count: int = 0  # of pending rows
    _opened: float = 0.0

    def __post_init__(self) -> None:
        self._next = len(part_paths(self.folder))

    def add(self, rows: Rows, *, now: float) -> None:
        """Add rows in the order of their application, at ``now`` steady seconds.

        Without rows, only time passes.
        """
        if not self._pending:
            self._opened = now
        if len(rows):
            self._pending.append(rows)
            self._count += len(rows)
        while self._count >= PART_ROWS:
            full = np.concatenate(self._pending)
            self._write(full[:PART_ROWS])
            self._pending = [full[PART_ROWS:]] if len(full) > PART_ROWS else []
            self._count = len(full) - PART_ROWS
            self._opened = now
        if self._count >= self.least_rows and now - self._opened >= PART_SECONDS:
            self.close()

    def close(self) -> None:
        """Write the pending rows; more may be added afterwards."""
        if self._pending:
            self._write(np.concatenate(self._pending))
            self._pending, self._count = [], 0

    def cut(self, version: int) -> None:
        """Remove the updates that were applied at this version or later.

        The last parts are removed before the cut part is replaced, so the remaining parts are
        always a prefix of the record.
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

        with replacing(part_path(self.folder, self._next)) as fresh:
            pyarrow.parquet.write_table(
                _table(rows), fresh, compression="zstd", write_page_checksum=True
            )
        self._next += 1


class DamagedPartError(DataError):
    """A part is missing or unreadable; all earlier parts are readable.

    Attributes:
        folder: folder of the parts.
        number: number of the part.
    """

    def __init__(self, folder: Path, number: int, what: str) -> None:
        super().__init__(
            f"{part_path(folder, number)}: the part {what}.",
            hint="Its rows are not in ps/updates.bin either. Delete it and all later parts to "
            "read the earlier rows in Python, as `Run.updates`.",
        )
        self.folder = folder
        self.number = number

    def later(self) -> list[Path]:
        """Return this part, if it exists, and all later parts."""
        return [path for path in part_paths(self.folder) if _number(path) >= self.number]

    def least_rows(self) -> int:
        """Return the known minimum of rows in this part and all later parts."""
        total = 1
        for path in self.later():
            with suppress(DamagedPartError):
                total += len(_read_part(path))
        return total


def part_paths(folder: Path) -> list[Path]:
    """Return the paths of complete parts, by number.

    Raises:
        DataError: it is no folder.
        PermissionError: the folder is not readable; ``glob`` would find nothing.
    """
    if folder.exists() and not folder.is_dir():
        raise DataError(
            f"{folder}: found a file, expected the folder of the updates.",
            hint="Remove it and restore the folder; that of a live run is made again from "
            "ps/updates.bin by `testbed report`.",
        )
    found = folder.iterdir() if folder.exists() else ()
    return sorted((one for one in found if one.match("part-[0-9]*.parquet")), key=_number)


def read_parts(folder: Path) -> Iterator[Rows]:
    """Yield the rows of each complete part, in order.

    Raises:
        DamagedPartError: a part is missing or damaged; names it.
    """
    for number, path in enumerate(part_paths(folder)):
        if _number(path) != number:
            raise DamagedPartError(folder, number, "is missing, but later ones exist")
        yield _read_part(path)


def _number(path: Path) -> int:
    return int(path.stem.removeprefix("part-"))


def part_path(folder: Path, number: int) -> Path:
    """Return the path of a part."""
    return folder / f"part-{number:04d}.parquet"


def _read_part(path: Path) -> Rows:
    import pyarrow
    import pyarrow.parquet

    try:
        table = pyarrow.parquet.read_table(path, page_checksum_verification=True)
        stored = {name: table.column(name).to_numpy() for name in table.column_names}
        return conform(stored, table.num_rows)
    except KeyError as error:
        raise DamagedPartError(path.parent, _number(path), f"has no column {error}") from None
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        what = f"cannot be read ({reason})"
        raise DamagedPartError(path.parent, _number(path), what) from None


def _table(rows: Rows) -> pyarrow.Table:
    """Convert rows to an Arrow table with their own types, not inferred ones."""
    import pyarrow

    fields = [
        pyarrow.field(name, pyarrow.from_numpy_dtype(rows.dtype[name]), nullable=False)
        for name in rows.dtype.names or ()
    ]
    schema = pyarrow.schema(fields, metadata={"format": str(FORMAT)})
    columns = []
    for one in fields:  # as in memory; pyarrow.array would import pandas to inspect it
        values = pyarrow.py_buffer(np.ascontiguousarray(rows[one.name]))
        columns.append(pyarrow.Array.from_buffers(one.type, len(rows), [None, values]))
    return pyarrow.Table.from_arrays(columns, schema=schema)
