"""Times in a run whose host's wall clock is changed during the run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from testbed.telemetry.event_kinds import StateChanged
from testbed.telemetry.folder import RunFolder
from testbed.telemetry.ps_events import Started
from testbed.telemetry.record import Clock, Recorder
from testbed.telemetry.wall import ClockOffset, WallClock, measure_offset


class Host:
    """Two clocks, one of which can be set."""

    def __init__(self) -> None:
        self.wall, self.steady = 1000.0, 50.0

    def pass_by(self, seconds: float) -> None:
        self.wall += seconds
        self.steady += seconds


@pytest.fixture
def host() -> Host:
    return Host()


@pytest.fixture
def clock(host: Host) -> WallClock:
    return WallClock(lambda: host.wall, lambda: host.steady)


def test_a_time_is_the_first_reading_plus_the_elapsed_time(host: Host, clock: WallClock) -> None:
    host.pass_by(5)
    assert (clock(), clock.offset()) == (1005, 0)
    host.wall -= 900
    assert (clock(), clock.offset()) == (1005, -900)
    assert clock.read() == 105  # of another run
    assert clock.offset() == 0


@pytest.mark.parametrize("jump", [-990.0, 86400.0])
def test_the_times_of_a_run_are_in_order_and_the_jump_is_recorded(
    host: Host, clock: WallClock, tmp_path: Path, jump: float
) -> None:
    folder = RunFolder.create(tmp_path, "r", scenario="s", text="", classes=["a"], now=clock())
    clocks = Clock(wall=clock, steady=lambda: host.steady, offset=clock.offset)
    with Recorder.into(folder, time_scale=1.0, clock=clocks) as recorder:
        host.pass_by(2)
        recorder.event(StateChanged("training"))
        recorder.event(Started())
        host.pass_by(3)
        host.wall += 0.9  # as NTP does: not reported
        recorder.time_passed()
        host.wall += jump
        for _ in range(2):
            host.pass_by(1)
            recorder.time_passed()
        recorder.event(StateChanged("finished"))
    state = folder.state()
    moments = (state.created, state.started, state.ended)
    assert moments == tuple(f"1970-01-01T00:16:{seconds}.000Z" for seconds in (40, 42, 47))
    lines = [json.loads(line) for line in folder.events.read_text().splitlines()]
    assert [one["time"] for one in lines] == [1002, 1002, 1006, 1007]
    (told,) = told_of(lines)
    assert told["seconds"] == pytest.approx(jump + 0.9)


def told_of(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [one for one in lines if one["event"] == "clock_set"]


def test_an_end_reported_by_another_process_is_not_before_the_start(tmp_path: Path) -> None:
    """For example by `testbed down`, after the clock was set back."""
    folder = RunFolder.create(tmp_path, "r", scenario="s", text="", classes=["a"], now=1000.0)
    folder.move("interrupted", now=3.0)
    assert folder.state().ended == folder.state().created


def test_an_offset_is_measured_by_the_shortest_round_trip(host: Host) -> None:
    """Another clock is 5 s ahead; the ways there and back take unlike long."""
    ways = iter([(1.0, 3.0), (0.25, 0.75), (4.0, 0.0)])

    def read() -> float:
        there, back = next(ways)
        host.pass_by(there)
        found = host.wall + 5.0
        host.pass_by(back)
        return found

    found = measure_offset(read, clock=lambda: host.wall, round_trips=3)
    # Asked at t, read at t + 0.25, answered at t + 1: 5.25 - 0.5, and half of a second of doubt.
    assert found == ClockOffset(4.75, 0.5)
    assert abs(found.seconds - 5.0) <= found.error_seconds
    assert (found.here(104.75), found.there(100.0)) == (100.0, 104.75)
