"""Values of a class that differ from device to device: drawn once per device, or from a table."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from functools import cache
from typing import Annotated, Any, Literal

from pydantic import Field

from testbed.errors import InvalidValue
from testbed.values.fields import PositiveDuration, PositiveRate, Share, StrictModel, Word
from testbed.values.laws import FAMILIES, Law
from testbed.values.traces import InvalidLine
from testbed.values.units import Quantity

MOST_ROWS = 100_000


class Table(StrictModel):
    """A column of a CSV file with a header and a row for each device of the class.

    Attributes:
        file: the file, relative to the scenario.
        column: name of the column.
        unit: unit of a column of bare numbers, such as `ms` or `mbit`.
        rows: which rows the devices of the class get: `in_order`, the first device the first row;
            or `drawn` from the seed, each row at most once. Columns of one file stay together: a
            device has the same row in all of them.
        values: the column's values; filled in from the file when the scenario is loaded.
    """

    file: Word
    column: Word
    unit: Word | None = None
    rows: Literal["in_order", "drawn"] = "in_order"
    values: Annotated[tuple[Word, ...], Field(strict=False)] = ()


class _Drawn(StrictModel):
    """A value that is drawn once for each device: a draw of `each` times `mean`.

    Attributes:
        each: a law of mean 1.
        mean: mean of the devices.
    """

    each: Law


class DrawnRate(_Drawn):
    """A rate that is drawn once for each device: a draw of `each` times `mean`."""

    mean: PositiveRate


class DrawnDelay(_Drawn):
    """A delay that is drawn once for each device: a draw of `each` times `mean`."""

    mean: PositiveDuration


class Deal(StrictModel):
    """Deals the shares of the data to devices by their speed; by default independently of it.

    Attributes:
        by: what is dealt by speed: the number of training `samples`.
        most: whether the `fastest` or the `slowest` devices get the largest shares.
        correlation: 1 for the exact order; less mixes it with noise drawn from the seed.
    """

    by: Literal["samples"]
    most: Literal["fastest", "slowest"] = "fastest"
    correlation: Share = 1.0


def is_law(value: Any) -> bool:
    """Whether a value is meant as a law, and not as a duration."""
    return isinstance(value, Law) or (
        isinstance(value, str) and ("(" in value or value.strip() in FAMILIES)
    )


@cache
def quantities(kind: type[Quantity], texts: tuple[str, ...]) -> tuple[float, ...]:
    """Return the values of a table in seconds or bits per second."""
    return tuple(float(kind.parse(text)) for text in texts)


def read_column(text: str, table: Table, kind: type[Quantity], *, devices: int) -> tuple[str, ...]:
    """Read a table's column; return its values as text with units, by row.

    Args:
        text: content of the file.
        table: names the column.
        kind: what its values are.
        devices: number of devices that need a row.

    Raises:
        InvalidLine: no such column, a missing row, or a value that is negative, zero, without a
            unit or not a number.
    """
    lines = [(number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    lines = [(number, line) for number, line in lines if not line.lstrip().startswith("#")]
    cells = csv.reader(line for _, line in lines)
    rows = [
        (at, [cell.strip() for cell in row]) for (at, _), row in zip(lines, cells, strict=False)
    ]
    if not rows:
        raise InvalidLine(0, "an empty file", f"a header with {table.column}, and rows")
    number, header = rows[0]
    if header.count(table.column) != 1:
        found = f"{'no' if table.column not in header else 'more than one'} column {table.column}"
        raise InvalidLine(number, found, f"one of {', '.join(filter(None, header))}")
    if not devices <= len(rows) - 1 <= MOST_ROWS:
        expected = f"at least {devices:,}, one for each device of the class"
        if len(rows) > devices:
            expected = f"at most {MOST_ROWS:,}"
        raise InvalidLine(0, f"{len(rows) - 1:,} rows", expected)
    place, needed = header.index(table.column), devices if table.rows == "in_order" else None
    return tuple(_value(*row, place, table, kind) for row in rows[1:][:needed])


def _value(number: int, row: Sequence[str], place: int, table: Table, kind: type[Quantity]) -> str:
    """Return a cell as text with its unit."""
    cell = row[place] if place < len(row) else ""
    bare = _is_number(cell)
    if bare and table.unit is None:
        units = ", ".join(kind.UNITS)
        expected = f"{kind.WANTED}; or name the column's unit in the scenario, `unit`: {units}"
        raise InvalidLine(number, f"{cell} in column {table.column}, without a unit", expected)
    try:
        value = kind.parse(f"{cell}{table.unit}" if bare else cell)
    except InvalidValue as error:
        if cell.startswith("-"):
            expected = f"a {kind.NOUN} above zero"
            raise InvalidLine(number, f"{cell} in column {table.column}", expected) from None
        found = f"{error.found or 'nothing'} in column {table.column}"
        raise InvalidLine(number, found, error.expected) from None
    if value <= 0:
        raise InvalidLine(number, f"{cell} in column {table.column}", f"a {kind.NOUN} above zero")
    return str(value)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
