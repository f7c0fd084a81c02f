"""Recordings of other tools and data sets, by numbers worked by hand."""

from __future__ import annotations

import pickle

import pytest

from testbed.values.presence import (
    devices_text,
    is_of_devices,
    read_devices,
    read_fedscale,
    read_flash,
)
from testbed.values.recordings import Reading, check_plausible, guess, read_foreign
from testbed.values.traces import DELAY, RATE, InvalidLine, Trace, read_trace

FIVE_G = (
    "Timestamp,Longitude,NetworkMode,DL_bitrate,UL_bitrate\n"
    "2019.12.16_13.40.59,-8.4,5G,50000,1000\n"
    "2019.12.16_13.40.59,-8.4,5G,70000,-\n"
    "2019.12.16_13.41.01,-8.4,5G,10000,3000\n"
    "2019.12.16_13.41.03,-8.4,5G,0,2000\n"
)
FCC = (
    "unit_id,dtime,fetch_time,bytes_sec\n"
    "7,2016-06-01 00:00:05,5,125000\n"
    "7,2016-06-01 01:00:05,5,250000\n"
    "9,2016-06-01 00:00:07,5,1\n"
)
PING = '{{"DataId":"MONROE.EXP.PING","TimeStamp":{},"Rtt":{}}}\n'


@pytest.mark.parametrize(
    ("layout", "text", "quantity", "times", "values", "end"),
    [
        ("5g", FIVE_G, RATE, (0, 2, 4), (60e6, 10e6, 0), 6),  # equal stamps are averaged
        ("pensieve", "1.5\t2.5\n2.0\t0.5\n3.0\t4\n", RATE, (0, 0.5, 1.5), (2.5e6, 5e5, 4e6), 2.25),
        (
            "norway",
            "1289406399 549 59.8 10.7 125000 1000\n1289406400 1549 59.8 10.7 250000 2000\n",
            RATE,
            (0, 1),
            (1e6, 1e6),
            2,
        ),
        ("fcc", FCC.replace("\n9", "\n#9"), RATE, (0, 3600), (1e6, 2e6), 7200),
        ("monroe", PING.format(10, 40) + PING.format(11.5, 60), DELAY, (0, 1.5), (0.02, 0.03), 3),
        ("csv", "t;kbps\n0;10\n2;30\n", RATE, (0, 2), (1e4, 3e4), 4),
    ],
)
def test_a_layout_has_its_columns_and_units(
    layout: str,
    text: str,
    quantity: str,
    times: tuple[float, ...],
    values: tuple[float, ...],
    end: float,
) -> None:
    named = {"column": "kbps", "unit": "kbit"} if layout == "csv" else {}
    trace = read_foreign(text, quantity, Reading(layout, **named), repeats=True)
    assert trace.times == pytest.approx(times)
    assert trace.values == pytest.approx(values)
    assert trace.end == pytest.approx(end)
    assert layout == "csv" or guess(text) == layout


def test_columns_units_and_rows_can_be_chosen() -> None:
    reading = Reading("5g", column="UL_bitrate")
    assert read_foreign(FIVE_G, RATE, reading, repeats=True).values == (1e6, 3e6, 2e6)
    reading = Reading("fcc", where={"unit_id": "7"}, column="fetch_time", unit="MB/s")
    assert read_foreign(FCC, RATE, reading, repeats=False).values == (40e6, 40e6)
    text = "ms,x\n0,20\n500,40\n"
    reading = Reading(column="x", unit="ms", time_unit="ms")
    assert read_foreign(text, DELAY, reading, repeats=True).times == (0, 0.5)


@pytest.mark.parametrize(
    ("reading", "text", "line", "found"),
    [
        (Reading("fcc"), FCC, 4, "rows of unit_id 7 and 9"),
        (Reading("5g", column="UL"), FIVE_G, 2, "no column UL"),
        (Reading("csv", column="DL_bitrate"), FIVE_G, 0, "column DL_bitrate without a unit"),
        (Reading("5g", unit="furlong"), FIVE_G, 0, "the unit 'furlong'"),
        (Reading("5g", where={"CellID": "1"}), FIVE_G, 2, "no column CellID"),
        (Reading("5g", where={"NetworkMode": "3G"}), FIVE_G, 0, "no rows"),
        (Reading("pensieve"), "0 1\n7\n", 2, "1 values, '7'"),
        (Reading("pensieve"), "0 1\n1 x\n", 2, "'x'"),
        (Reading("pensieve"), "0 1\n1 -2\n", 2, "'-2'"),
        (Reading("pensieve"), "3 1\n1 2\n", 2, "'1' after a later time"),
        (Reading("pensieve"), "1 1\n1 2\n", 0, "1 different times"),
        (Reading("csv", column="a", unit="bit"), "t,a\nyesterday,1\n", 2, "'yesterday'"),
        (Reading("monroe"), '{"MONROE": 1\n', 1, "'{\"MONROE\": 1'"),
    ],
)
def test_another_text_is_refused_with_its_line(
    reading: Reading, text: str, line: int, found: str
) -> None:
    with pytest.raises(InvalidLine) as refused:
        read_foreign(text, RATE, reading, repeats=True)
    assert (refused.value.line, refused.value.found) == (line, found)


def test_mahimahi_is_bounded_after_binning() -> None:
    """600,000 packets in 60 s: 10 a millisecond, 5,000 in half a second."""
    text = "".join(f"{1 + one // 10}\n" for one in range(600_000))
    trace = read_trace(text, RATE, repeats=True)
    assert len(trace.times) == 120
    assert trace.values[3] == pytest.approx(5000 * 8 * 1514 / 0.5)


@pytest.mark.parametrize(
    ("values", "quantity", "unit"),
    [((5, 0), RATE, "mbit"), ((5e10, 5e10), RATE, "kbit"), ((40, 60), DELAY, "ms")],
)
def test_an_implausible_unit_is_asked_about(
    values: tuple[float, ...], quantity: str, unit: str
) -> None:
    with pytest.raises(InvalidLine, match=f"Are the numbers in {unit}"):
        check_plausible(Trace((0, 1), values, 2, True), quantity)
    check_plausible(Trace((0, 1), (0, 0), 2, True), quantity)


def test_fedscale() -> None:
    """Present from 10 to 30 s and from 50 s; the other from 0 to 30."""
    clients = {
        1: {"active": [10, 50], "inactive": [30, 90], "finish_time": 80, "model": "x"},
        "b": {"active": [0], "inactive": [30], "finish_time": 40, "model": "y"},
    }
    found = read_fedscale(pickle.dumps(clients))
    assert found["1"] == [(0, 0), (10, 1), (30, 0), (50, 1), (80, 1)]
    text = devices_text(found, "two")
    assert is_of_devices(text)
    traces = read_devices(text, repeats=True)
    assert traces["b"] == Trace((0, 30), (1, 0), 40, True)
    assert [traces["1"].at(time) for time in (5, 15, 35, 95)] == [0, 1, 0, 1]


def test_a_pickle_runs_no_code() -> None:
    with pytest.raises(InvalidLine, match=r"it contains builtins\.print"):
        read_fedscale(pickle.dumps(print))
    with pytest.raises(InvalidLine, match="another pickle"):
        read_fedscale(pickle.dumps([1]))


def test_flash() -> None:
    """Idle, charging and on Wi-Fi from 20 to 120 s."""
    events = [
        ("00:00:00", "screen_off"),
        ("00:00:10", "battery_charged_on"),
        ("00:00:20", "wifi"),
        ("00:01:20", "80.0%"),
        ("00:02:00", "screen_on"),
        ("00:03:00", "4G"),
    ]
    messages = "\n".join(f"2020-01-02 {time}\t{event}" for time, event in events) + "\nbroken"
    found = read_flash(b'{"681": {"messages": %s}}' % repr(messages).replace("'", '"').encode())
    assert found == {"681": [(0, 0), (20, 1), (120, 0), (180, 0)]}
    with pytest.raises(InvalidLine, match="another file"):
        read_flash(b'{"681": 5}')


def test_a_damaged_line_of_many_devices_keeps_its_number() -> None:
    text = "# two\ndevice,time_seconds,available\na,0,1\na,5,0\nb,0,1\nb,7,0.5\n"
    with pytest.raises(InvalidLine) as refused:
        read_devices(text, repeats=True)
    assert refused.value.line == 6
