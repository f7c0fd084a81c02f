"""Recordings as they are found: text of other tools and data sets, read into steps in time.

Each layout names its source. A value is held until the next row; rows of the same time are
averaged, and the recording ends after its last row and the median distance between two rows.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from math import isfinite
from reprlib import repr as shortened
from statistics import median

from testbed.values.traces import DELAY, MOST_STEPS, RATE, InvalidLine, Trace, numbered_lines

UNITS: Mapping[str, Mapping[str, float]] = {
    RATE: {"bit": 1, "kbit": 1e3, "mbit": 1e6, "gbit": 1e9, "B/s": 8, "KB/s": 8e3, "MB/s": 8e6},
    DELAY: {"us": 1e-6, "ms": 1e-3, "s": 1},
}
TIME_UNITS: Mapping[str, float] = {"us": 1e-6, "ms": 1e-3, "s": 1, "min": 60, "h": 3600}
STAMPS = ("%Y.%m.%d_%H.%M.%S", "%d/%m/%Y %H:%M:%S")
"""Date formats that occur besides ISO 8601."""

MISSING = ("", "-", "na", "nan", "null", "none")
"""What stands for a missing measurement; its row is skipped."""


@dataclass(frozen=True)
class Source:
    """The column of a quantity in a layout: its unit, and what its values are multiplied by."""

    column: str
    unit: str
    factor: float = 1.0


@dataclass(frozen=True)
class Layout:
    """The text of a tool or a data set.

    Attributes:
        time: the column with the times; the first column by default.
        time_unit: unit of times that are numbers.
        sources: the column of each quantity.
        columns: names of the columns of a file without a header; separated by white space.
        group: a column of which a recording has one value, such as the number of a device.
        origin: where it comes from.
    """

    origin: str
    time: str = ""
    time_unit: str = "s"
    sources: Mapping[str, Source] = field(default_factory=dict)
    columns: tuple[str, ...] = ()
    group: str = ""


NORWAY = ("unix_seconds", "milliseconds", "latitude", "longitude", "bytes", "elapsed_ms")
LAYOUTS: Mapping[str, Layout] = {
    "csv": Layout("any CSV file with a header: name `column`, and `unit`"),
    "pensieve": Layout(
        "Mao et al., Neural Adaptive Video Streaming with Pensieve, SIGCOMM 2017: seconds, Mbit/s",
        sources={RATE: Source("rate", "mbit")},
        columns=("time_seconds", "rate"),
    ),
    "norway": Layout(
        "Riiser et al., Commute Path Bandwidth Traces from 3G Networks, MMSys 2013",
        time="milliseconds",
        time_unit="ms",
        sources={RATE: Source("rate", "bit")},
        columns=NORWAY,
    ),
    "5g": Layout(
        "Raca et al., Beyond Throughput, The Next Generation: a 5G Dataset, MMSys 2020: kbit/s",
        time="Timestamp",
        sources={RATE: Source("DL_bitrate", "kbit")},
    ),
    "monroe": Layout(
        "MONROE's experiments http_download (bytes per second) and ping (round trips, of which a "
        "delay is half), as CSV or a JSON object per line",
        time="Timestamp",
        sources={RATE: Source("Speed", "B/s"), DELAY: Source("Rtt", "ms", 0.5)},
    ),
    "fcc": Layout(
        "FCC, Measuring Broadband America, raw data of curr_httpgetmt and the like: bytes_sec",
        time="dtime",
        sources={RATE: Source("bytes_sec", "B/s")},
        group="unit_id",
    ),
}
"""Layouts by name; Mahimahi's packet deliveries are no rows of values (``values.traces``)."""


@dataclass(frozen=True)
class Reading:
    """How to read a file: a layout, and what replaces its columns and units.

    Attributes:
        where: values that rows must have in other columns.
    """

    layout: str = "csv"
    column: str = ""
    unit: str = ""
    time: str = ""
    time_unit: str = ""
    where: Mapping[str, str] = field(default_factory=dict)


Row = tuple[int, Mapping[str, str]]


def read_foreign(text: str, quantity: str, reading: Reading, *, repeats: bool) -> Trace:
    """Read a recording of ``quantity`` (as in ``values.traces``) in another layout.

    Raises:
        InvalidLine: no such column, unit or value; names the line.
    """
    layout = LAYOUTS[reading.layout]
    rows = list(_chosen(_rows(text, layout), layout, reading))
    if not rows:
        raise InvalidLine(0, "no rows", "rows of measurements; does `where` match any?")
    source = _source(rows[0], layout, reading, quantity)
    time = reading.time or layout.time or next(iter(rows[0][1]))
    _require(rows[0], time, "`time`")
    scale = TIME_UNITS[reading.time_unit or layout.time_unit]
    factor = UNITS.get(quantity, {}).get(source.unit, 1.0) * source.factor
    points: list[tuple[float, float]] = []
    for number, row in rows:
        if row[source.column].lower() in MISSING:
            continue
        moment = _time(number, row[time], scale)
        if points and moment < points[-1][0]:
            found = f"{shortened(row[time])} after a later time"
            raise InvalidLine(number, found, "times in order; choose one device with `where`?")
        points.append((moment, _value(number, row[source.column]) * factor))
    return _trace(points, repeats=repeats)


def _rows(text: str, layout: Layout) -> Iterator[Row]:
    """Yield the rows of a text, with their line numbers and by the names of their columns."""
    lines = numbered_lines(text)
    if lines and lines[0][1].startswith("{"):
        yield from (_json_row(number, line) for number, line in lines)
        return
    names = list(layout.columns)
    separator = "" if names else _separator(lines[0][1] if lines else "")
    for number, line in lines:
        cells = line.split() if not separator else next(csv.reader([line], delimiter=separator))
        cells = [cell.strip() for cell in cells]
        if not names:
            names = cells
            continue
        if len(cells) != len(names):
            found = f"{len(cells)} values, {shortened(line)}"
            raise InvalidLine(number, found, f"{len(names)}: {', '.join(names)}")
        row = dict(zip(names, cells, strict=True))
        if layout.columns == NORWAY:
            row["rate"] = _norway_rate(number, row)
        yield number, row


def _norway_rate(number: int, row: Mapping[str, str]) -> str:
    """Return the bits per second of the bytes received since the row before."""
    elapsed = _value(number, row["elapsed_ms"])
    return repr(8000 * _value(number, row["bytes"]) / elapsed) if elapsed else ""


def _separator(header: str) -> str:
    """Return what separates the columns; empty for white space."""
    return next((one for one in (",", ";", "\t") if one in header), "" if " " in header else ",")


def _json_row(number: int, line: str) -> Row:
    try:
        found = json.loads(line)
    except ValueError:
        raise InvalidLine(number, shortened(line), "a JSON object in every line") from None
    row = {str(key): str(value) for key, value in found.items()}
    if "TimeStamp" in row:  # MONROE's experiments write both
        row.setdefault("Timestamp", row["TimeStamp"])
    return number, row


def _chosen(rows: Iterator[Row], layout: Layout, reading: Reading) -> Iterator[Row]:
    """Yield the rows with the wanted values; refuse rows of several devices."""
    group = ""
    for number, row in rows:
        for name in reading.where:
            _require((number, row), name, "`where`")
        if any(row[name] != value for name, value in reading.where.items()):
            continue
        own = row.get(layout.group, "")
        if group and own != group:
            found = f"rows of {layout.group} {group} and {own}"
            raise InvalidLine(number, found, f"one of them: `where: {{{layout.group}: {group}}}`")
        group = own
        yield number, row


def _source(first: Row, layout: Layout, reading: Reading, quantity: str) -> Source:
    """Return the column with the quantity, and its unit."""
    known = layout.sources.get(quantity)
    if known is None and not reading.column:
        raise InvalidLine(0, f"no column for {quantity}", f"`column`: one of {', '.join(first[1])}")
    column = reading.column or (known.column if known else "")
    _require(first, column, "`column`")
    units = UNITS.get(quantity, {})
    unit = reading.unit or (known.unit if known else "")
    if unit not in units and units:
        found = f"the unit {unit!r}" if unit else f"column {column} without a unit"
        raise InvalidLine(0, found, f"`unit`: one of {', '.join(units)}")
    return Source(column, unit, known.factor if known and column == known.column else 1.0)


def _require(row: Row, name: str, key: str) -> None:
    if name not in row[1]:
        found = f"no column {name}"
        raise InvalidLine(row[0], found, f"for {key}: one of {', '.join(row[1])}")


def _time(number: int, text: str, scale: float) -> float:
    """Return a time in seconds: a number, or a date."""
    try:
        value = float(text) * scale
    except ValueError:
        value = _date(number, text).timestamp()
    if not isfinite(value):
        raise InvalidLine(number, shortened(text), "a time")
    return value


def _date(number: int, text: str) -> datetime:
    for stamp in ("", *STAMPS):
        try:
            found = datetime.strptime(text, stamp) if stamp else datetime.fromisoformat(text)
        except ValueError:
            continue
        return found if found.tzinfo else found.replace(tzinfo=UTC)
    raise InvalidLine(number, shortened(text), "a number, or a date like 2020-01-31 12:30:00")


def _value(number: int, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise InvalidLine(number, shortened(text), "a number") from None
    if not isfinite(value) or value < 0:
        raise InvalidLine(number, shortened(text), "a number, not negative")
    return value


def _trace(points: list[tuple[float, float]], *, repeats: bool) -> Trace:
    """Return the steps of points in order; the first is at 0."""
    merged: dict[float, list[float]] = {}
    for moment, value in points:
        merged.setdefault(moment - points[0][0], []).append(value)
    times = tuple(merged)
    if len(times) < 2:
        raise InvalidLine(0, f"{len(times)} different times", "at least two")
    if len(times) > MOST_STEPS:
        raise InvalidLine(0, f"{len(times):,} different times", f"at most {MOST_STEPS:,}")
    values = tuple(sum(same) / len(same) for same in merged.values())
    gap = median(after - before for before, after in pairwise(times))
    return Trace(times, values, times[-1] + gap, repeats)


def guess(text: str) -> str | None:
    """Return the name of the layout that a text seems to have, or None."""
    lines = (line.strip() for line in text.splitlines() if not line.startswith("#"))
    first = next((line for line in lines if line), "")
    names = set(first.replace(";", ",").replace("\t", ",").split(","))
    if first.isdecimal():
        return "mahimahi"
    for name, layout in LAYOUTS.items():
        known = {layout.time, *(source.column for source in layout.sources.values())}
        if layout.columns and _are_numbers(first.split(), len(layout.columns)):
            return name
        if layout.time in names and known & names - {layout.time}:
            return name
    return "monroe" if first.startswith("{") and "MONROE" in first.upper() else None


def _are_numbers(words: list[str], count: int) -> bool:
    return len(words) == count and all(
        word.replace(".", "", 1).replace("-", "", 1).isdecimal() for word in words
    )


IMPLAUSIBLE: Mapping[str, tuple[float, float]] = {RATE: (10e3, 20e9), DELAY: (0.0, 5.0)}
"""Largest value below, and mean above which a unit is doubted: bits per second, seconds."""


def check_plausible(trace: Trace, quantity: str) -> None:
    """Ask for the unit of a recording whose values are not those of a link.

    Raises:
        InvalidLine: all rates are below 10 kbit or their mean is above 20 gbit, or the mean delay
            is above 5 s.
    """
    if quantity not in IMPLAUSIBLE:
        return
    least, most = IMPLAUSIBLE[quantity]
    largest, mean = max(trace.values), trace.mean()
    if 0 < largest < least:
        found, unit = f"rates of at most {largest:g} bit/s", "mbit"
    elif mean > most and quantity == RATE:
        found, unit = f"rates of {mean / 1e9:,.0f} gbit/s on average", "kbit"
    elif mean > most:
        found, unit = f"delays of {mean:,.0f} s on average", "ms"
    else:
        return
    expected = f"those of a link. Are the numbers in {unit}? Then name `column` and `unit: {unit}`"
    raise InvalidLine(0, found, expected)
