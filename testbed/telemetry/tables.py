"""The CSV files of a run folder (evaluations, traffic, links)."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from testbed.telemetry.event_kinds import Evaluated
from testbed.telemetry.files import LineReader, write_atomically


@dataclass
class CsvTable:
    """A CSV file that grows by whole lines, each on disk before the next is written.

    A file started by another version keeps its columns.
    """

    path: Path  # the file; its header is written when the table is opened
    columns: Sequence[str]  # names of its columns
    _file: TextIO = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._file = self.path.open("a", buffering=1, newline="", encoding="utf-8")
        self._rows = csv.writer(self._file, lineterminator="\n")
        self._kept = self.columns
        if self._file.tell() == 0:
            self._rows.writerow(self.columns)
        else:
            self._kept = LineReader(self.path).read()[0].decode().split(",")

    def append(self, row: Mapping[str, Any]) -> None:
        """Append a row; missing values and None stay empty.

        Raises:
            ValueError: the row has an unknown column.
        """
        unknown = row.keys() - set(self.columns)
        if unknown:
            raise ValueError(f"{self.path.name} has no column {', '.join(sorted(unknown))}")
        self._rows.writerow([_text(row.get(name)) for name in self._kept])

    def cut(self, column: str, most: int) -> None:
        """Remove the rows with a larger value in a column of integers."""
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
    """Convert an evaluation to a row of ``evaluations.csv``."""
    return {**vars(event), "wall_seconds": event.time_seconds / time_scale}


def drop_torn_line(path: Path) -> None:
    """Remove an incomplete last line, so that the file can be appended to again."""
    whole = sum(len(line) + 1 for line in LineReader(path).read())
    if path.exists() and path.stat().st_size > whole:
        with path.open("r+b") as file:
            file.truncate(whole)
