"""Recordings of a value: steps in time, read from CSV or from Mahimahi's cellular traces.

CSV has a header, ``time_seconds`` and the value's name with its unit if it has one, and increasing
times from 0. The last row ends the recording: there it repeats from the start, or its value is
held.

A packet-delivery trace (Netravali et al., "Mahimahi: Accurate Record-and-Replay for HTTP", USENIX
ATC 2015) has one line per 1,500 bytes that could pass: the time in milliseconds. It repeats after
its last line. A rate is computed from what could pass in half a second.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass
from math import ceil, isfinite
from reprlib import repr as shortened

from testbed.errors import InvalidValue

MOST_STEPS = 200_000
BIN_SECONDS = 0.5
SHORTEST_SECONDS = 0.001
LONGEST_MS = int(1000 * BIN_SECONDS * MOST_STEPS)
FRAME_BITS = 8 * 1514
"""A packet of 1,500 bytes in its Ethernet frame."""


class InvalidLine(InvalidValue):
    """An invalid line of a recording.

    Attributes:
        line: its number, from 1; 0 for the file as a whole.
    """

    def __init__(self, line: int, found: str, expected: str) -> None:
        super().__init__(found, expected)
        self.line = line


@dataclass(frozen=True)
class Trace:
    """A value that changes in steps.

    Attributes:
        times: seconds at which it changes; the first is 0.
        values: the value from each time on.
        end: end of the recording, in seconds.
        repeats: whether it starts again at its end; otherwise the last value is held.
    """

    times: tuple[float, ...]
    values: tuple[float, ...]
    end: float
    repeats: bool

    def at(self, time: float, offset: float = 0.0) -> float:
        """Return the value, with the recording at ``offset`` at time 0."""
        inside = (time + offset) % self.end if self.repeats else time + offset
        return self.values[bisect_right(self.times, inside) - 1]

    def after(self, time: float, value: float, offset: float = 0.0) -> tuple[float, float] | None:
        """Return time and value of the first change from ``value`` after ``time``, or None."""
        lap = int((time + offset) // self.end) if self.repeats else 0
        first = max(0, bisect_right(self.times, time + offset - lap * self.end) - 1)
        for around in range(lap, lap + (3 if self.repeats else 1)):
            for place in range(first, len(self.times)):
                moment = around * self.end + self.times[place] - offset
                if moment > time and self.values[place] != value:
                    return moment, self.values[place]
            first = 0
        return None

    def mean_between(self, begin: float, end: float, offset: float = 0.0) -> float:
        """Return the mean from ``begin`` to ``end``, which is later; see ``at``."""
        time, value, total = begin, self.at(begin, offset), 0.0
        while (change := self.after(time, value, offset)) is not None and change[0] < end:
            total += value * (change[0] - time)
            time, value = change
        return (total + value * (end - time)) / (end - begin)

    def mean(self) -> float:
        """Return the mean of the recording; the value if it is held and has no length."""
        if not self.end:
            return self.values[-1]
        ends = (*self.times[1:], self.end)
        parts = zip(self.values, self.times, ends, strict=True)
        return sum(value * (end - begin) for value, begin, end in parts) / self.end


def read_trace(text: str, column: str, *, repeats: bool) -> Trace:
    """Read a recording of the value ``column``; only rates may be packet deliveries.

    Raises:
        InvalidLine: it is empty, out of order, negative, or not such a text; names the line.
    """
    lines = numbered_lines(text)
    if not lines:
        raise InvalidLine(0, "an empty file", f"a header, time_seconds,{column}, and rows")
    if column == RATE and lines[0][1].isdecimal():
        return _deliveries(lines, repeats=repeats)
    if len(lines) > MOST_STEPS:
        raise InvalidLine(0, f"{len(lines):,} lines", f"at most {MOST_STEPS:,}")
    return _table(lines, column, repeats=repeats)


def numbered_lines(text: str) -> list[tuple[int, str]]:
    """Return the lines that are neither empty nor comments, stripped, with their numbers."""
    lines = [(number, line.strip()) for number, line in enumerate(text.splitlines(), 1)]
    return [(number, line) for number, line in lines if line and not line.startswith("#")]


RATE, DELAY, AVAILABLE, FACTOR = "bits_per_second", "delay_seconds", "available", "factor"


def _table(lines: list[tuple[int, str]], column: str, *, repeats: bool) -> Trace:
    header = [word.strip() for word in lines[0][1].split(",")]
    if header != ["time_seconds", column]:
        found, expected = shortened(lines[0][1]), f"the header time_seconds,{column}"
        raise InvalidLine(lines[0][0], found, expected)
    rows: list[tuple[float, float]] = []
    for number, line in lines[1:]:
        time, value = _numbers(number, line)
        if not rows and time != 0:
            raise InvalidLine(number, f"{time:g} s", "0 in the first row")
        if rows and time <= rows[-1][0]:
            raise InvalidLine(number, f"{time:g} s after {rows[-1][0]:g} s", "increasing times")
        if value < 0:
            raise InvalidLine(number, f"{value:g}", "no negative value")
        if column == AVAILABLE and value not in (0, 1):
            raise InvalidLine(number, f"{value:g}", "1 for present or 0 for absent")
        rows.append((time, value))
    if len(rows) < (2 if repeats else 1):
        raise InvalidLine(lines[-1][0], "too few rows", "rows, the last for the end")
    if repeats and rows[-1][0] < SHORTEST_SECONDS:
        found, expected = f"an end at {rows[-1][0]:g} s", "a recording of at least a millisecond"
        raise InvalidLine(lines[-1][0], found, expected)
    kept = rows[:-1] if repeats else rows
    times, values = zip(*kept, strict=True)
    return Trace(times, values, rows[-1][0], repeats)


def _numbers(number: int, line: str) -> tuple[float, float]:
    try:
        time, value = (float(word) for word in line.split(","))
    except ValueError:
        raise InvalidLine(number, shortened(line), "two numbers, like 0.5,2000000") from None
    if not (isfinite(time) and isfinite(value)):
        raise InvalidLine(number, shortened(line), "finite numbers")
    return time, value


def _deliveries(lines: list[tuple[int, str]], *, repeats: bool) -> Trace:
    moments: list[int] = []
    for number, line in lines:
        if not line.isdecimal():
            raise InvalidLine(number, shortened(line), "a whole number of milliseconds")
        if len(line) > len(str(LONGEST_MS)) or int(line) > LONGEST_MS:
            raise InvalidLine(number, shortened(line), f"at most {LONGEST_MS:,} milliseconds")
        moments.append(int(line))
        if len(moments) > 1 and moments[-1] < moments[-2]:
            found = f"{moments[-1]} ms after {moments[-2]} ms"
            raise InvalidLine(number, found, "milliseconds in ascending order")
    end = moments[-1] / 1000
    if not end:
        raise InvalidLine(0, "a recording of 0 s", "a recording of at least a millisecond")
    bins = Counter(
        min(int((one - 1) / 1000 / BIN_SECONDS), ceil(end / BIN_SECONDS) - 1) for one in moments
    )
    times, values = [], []
    for place in range(ceil(end / BIN_SECONDS)):
        lasts = min(BIN_SECONDS, end - place * BIN_SECONDS)
        times.append(place * BIN_SECONDS)
        values.append(bins[place] * FRAME_BITS / lasts)
    return Trace(tuple(times), tuple(values), end, repeats)
