"""Traces: their values over time and their changes, worked by hand."""

from __future__ import annotations

import pytest

from testbed.values.traces import DELAY, RATE, InvalidLine, Trace, read_trace

STEPS = """# made up
time_seconds,bits_per_second
0,1000
2,3000
3,1000
10,0
"""


def changes(trace: Trace, until: float, offset: float = 0.0) -> list[tuple[float, float]]:
    """All changes, in the order in which a driver visits them."""
    found = [(0.0, trace.at(0.0, offset))]
    while (following := trace.after(*found[-1], offset)) and following[0] <= until:
        found.append(following)
    return found


def test_a_trace_repeats_after_its_end() -> None:
    """It ends at 10 s; the last row's value does not hold then."""
    trace = read_trace(STEPS, RATE, repeats=True)
    expected = [(0, 1000), (2, 3000), (3, 1000), (12, 3000), (13, 1000), (22, 3000)]
    assert changes(trace, 22.5) == expected
    assert trace.mean() == pytest.approx((9 * 1000 + 3000) / 10)


def test_the_mean_over_an_interval_includes_every_change() -> None:
    """From 1 to 4: 1 s of 1000, 1 s of 3000, 1 s of 1000. From 9 to 12.5: 3 s, and .5 s of 3000."""
    trace = read_trace(STEPS, RATE, repeats=True)
    assert trace.mean_between(1.0, 4.0) == pytest.approx(5000 / 3)
    assert trace.mean_between(9.0, 12.5) == pytest.approx((3 * 1000 + 0.5 * 3000) / 3.5)
    assert trace.mean_between(2.2, 2.8) == pytest.approx(3000)
    assert trace.mean_between(0.0, 1.0, offset=1.5) == pytest.approx(2000)


def test_the_last_value_of_a_trace_can_be_held() -> None:
    trace = read_trace(STEPS, RATE, repeats=False)
    assert changes(trace, 1e9) == [(0, 1000), (2, 3000), (3, 1000), (10, 0)]


@pytest.mark.parametrize(
    ("offset", "expected"),
    [
        (2.5, [(0, 3000), (0.5, 1000), (9.5, 3000), (10.5, 1000)]),
        (9.0, [(0, 1000), (3, 3000), (4, 1000), (13, 3000), (14, 1000)]),
    ],
)
def test_a_worker_starts_at_an_offset(offset: float, expected: list[tuple[float, float]]) -> None:
    assert changes(read_trace(STEPS, RATE, repeats=True), 14.0, offset) == expected


def test_rounding_neither_skips_nor_repeats_a_change() -> None:
    """Alternating steps of a tenth of a second, from an offset that is not a multiple of tenths."""
    rows = "".join(f"{place / 10},{place % 2}\n" for place in range(11))
    trace = read_trace(f"time_seconds,delay_seconds\n{rows}", DELAY, repeats=True)
    found = changes(trace, 99.95, 1 / 3)
    assert len(found) == 1000  # the first change after 1/15 s, then ten per second until 99.867
    assert [value for _, value in found] == [(place + 1) % 2 for place in range(1000)]


def test_packet_deliveries_are_converted_to_rates_per_half_second() -> None:
    """Packets of 12,112 bits: two until 0.5 s, one until 1 s, three in the remaining 0.25 s."""
    trace = read_trace("100\n400\n700\n1100\n1250\n1250\n", RATE, repeats=True)
    assert trace.times == (0.0, 0.5, 1.0)
    assert trace.values == pytest.approx((48_448, 24_224, 145_344))
    assert trace.end == 1.25


@pytest.mark.parametrize(
    ("text", "column", "line", "words"),
    [
        ("", RATE, 0, "an empty file"),
        ("# nothing\n\n", RATE, 0, "an empty file"),
        ("time_seconds,bits_per_second\n", RATE, 1, "rows"),
        ("seconds,rate\n0,1\n", RATE, 1, "the header time_seconds,bits_per_second"),
        ("time_seconds,bits_per_second\n0,1\n2,1\n1,1\n", RATE, 4, "increasing times"),
        ("time_seconds,bits_per_second\n1,1\n2,1\n", RATE, 2, "0 in the first row"),
        ("time_seconds,bits_per_second\n0,1\n\n1,-5\n", RATE, 4, "no negative value"),
        ("time_seconds,bits_per_second\n0,1mbit\n", RATE, 2, "two numbers"),
        ("time_seconds,bits_per_second\n0,1,2\n", RATE, 2, "two numbers"),
        ("time_seconds,delay_seconds\n0,nan\n", DELAY, 2, "finite numbers"),
        ("5\n7\n6\n", RATE, 3, "milliseconds in ascending order"),
        ("5\n-7\n", RATE, 2, "a whole number of milliseconds"),
        ("0\n", RATE, 0, "at least a millisecond"),
        (f"1\n{'9' * 400}\n", RATE, 2, "at most 100,000,000 milliseconds"),
        (f"1\n{'9' * 5000}\n", RATE, 2, "at most 100,000,000 milliseconds"),
        ("time_seconds,delay_seconds\n0,1\n5e-324,1\n", DELAY, 3, "at least a millisecond"),
        ("5\n7\n", DELAY, 1, "the header time_seconds,delay_seconds"),
    ],
)
def test_an_invalid_trace_is_refused_with_its_line(
    text: str, column: str, line: int, words: str
) -> None:
    with pytest.raises(InvalidLine) as refused:
        read_trace(text, column, repeats=True)
    assert refused.value.line == line
    assert words in str(refused.value)
