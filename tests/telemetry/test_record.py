from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from testbed.telemetry.entry import Entry
from testbed.telemetry.event_kinds import BroughtUp, Exited, Launched, StateChanged
from testbed.telemetry.events import read_events
from testbed.telemetry.files import CsvTable, LineReader, drop_torn_line
from testbed.telemetry.folder import RunFolder
from testbed.telemetry.host import HostSample
from testbed.telemetry.parts import read_parts
from testbed.telemetry.ps_events import Evaluated, Started
from testbed.telemetry.record import Clock, Recorder
from testbed.telemetry.rows import UPDATE, Reading, Rows, TrafficRow, joined
from testbed.telemetry.sink import Sink

START = 1_700_000_000.0
EVALUATED = Evaluated(
    time_seconds=4.0,
    version=100,
    payload_up_bytes=1600,
    loss=0.1,
    metrics={"top1": 0.975, "top5": 1.0},
    images=360,
    final=True,
)


READING = {
    "sockets": 2,
    "wire_rx_bytes": 1,
    "wire_rx_packets": 2,
    "wire_tx_bytes": 3,
    "wire_tx_packets": 4,
    "tcp_received_bytes": 5,
    "tcp_segments_in": 6,
    "tcp_acked_bytes": 7,
    "tcp_segments_out": 8,
    "retransmitted_out_bytes": 9,
    "retransmitted_in_bytes": 10,
}


class Hand:
    """Two clocks advanced by hand; the steady one has another origin."""

    def __init__(self) -> None:
        self.now = START

    def clock(self) -> Clock:
        return Clock(wall=lambda: self.now, steady=lambda: self.now - START + 50)


@pytest.fixture
def hand() -> Hand:
    return Hand()


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder.create(tmp_path, "r", scenario="s", text="", classes=[], now=START)


def started(recorder: Recorder, time: float) -> None:
    recorder.from_ps(Entry(time, 0.0, Started()))


def test_events_carry_the_time_and_the_elapsed_time(folder: RunFolder, hand: Hand) -> None:
    with Recorder.into(folder, time_scale=1.0, clock=hand.clock()) as recorder:
        recorder.event(Launched("w1", 3))
        assert recorder.elapsed_seconds is None
        hand.now = START + 10
        started(recorder, START + 9.75)  # the controller reads it a quarter of a second later
        hand.now = START + 11
        recorder.event(Exited("w1", -9))
    assert read_events(folder.events) == [
        Entry(START, None, Launched("w1", 3)),
        Entry(START + 9.75, 0.0, Started(), source="ps"),
        Entry(START + 11, 1.25, Exited("w1", -9)),
    ]


def test_all_sinks_get_the_same_and_all_are_closed(hand: Hand) -> None:
    class Remembering(Sink):
        def __init__(self) -> None:
            self.told: list[object] = []

        def event(self, entry: Entry) -> None:
            self.told.append(entry)

        def updates(self, rows: Rows, *, now: float) -> None:
            self.told.append((len(rows), now))

        def readings(self, rows: Sequence[Reading]) -> None:
            self.told += [row.sockets for row in rows if isinstance(row, TrafficRow)]

        def time_passed(self, emulated: float) -> None:
            self.told.append(emulated)

        def close(self) -> None:
            self.told.append("closed")
            raise OSError("no room")

    sinks = Remembering(), Remembering()
    with (
        pytest.raises(OSError, match="no room"),
        Recorder(sinks, time_scale=2.0, clock=hand.clock()) as recorder,
    ):
        recorder.time_passed()  # there is no training yet
        recorder.event(Started())
        hand.now += 3
        recorder.updates(np.zeros(4, UPDATE))
        recorder.traffic(READING)
        recorder.time_passed()
    told = [Entry(START, 0.0, Started(), source="ps"), (4, 53.0), 2, 6.0, "closed"]
    assert [sink.told for sink in sinks] == [told, told]


def test_a_change_of_state_is_recorded(folder: RunFolder, hand: Hand) -> None:
    with Recorder.into(folder, time_scale=1.0, clock=hand.clock()) as recorder:
        recorder.event(StateChanged("interrupted", "Ctrl-C"))
    assert folder.state().state == "interrupted"
    assert folder.state().reason == "Ctrl-C"
    assert read_events(folder.events)[0].event == StateChanged("interrupted", "Ctrl-C")


def test_every_line_is_on_disk_at_once(folder: RunFolder, hand: Hand) -> None:
    with Recorder.into(folder, time_scale=1.0, clock=hand.clock()) as recorder:
        assert LineReader(folder.evaluations).read() == []  # the first one brings the header
        assert len(LineReader(folder.traffic).read()) == 1
        recorder.event(BroughtUp(1.0))
        assert len(LineReader(folder.events).read()) == 1
        recorder.traffic(READING)
        assert len(LineReader(folder.traffic).read()) == 2


def test_numbers_that_json_cannot_hold_become_null(folder: RunFolder, hand: Hand) -> None:
    with Recorder.into(folder, time_scale=1.0, clock=hand.clock()) as recorder:
        recorder.event(replace(EVALUATED, loss=float("nan"), metrics={"top1": np.float32("inf")}))
    line = LineReader(folder.events).read()[0]
    assert json.loads(line)["loss"] is None
    assert json.loads(line)["top1"] is None


def test_an_evaluation_is_in_the_events_and_in_its_table(folder: RunFolder, hand: Hand) -> None:
    entry = Entry(START, 2.5, EVALUATED)
    with Recorder.into(folder, time_scale=2.0, clock=hand.clock()) as recorder:
        recorder.from_ps(entry)
        recorder.from_ps(replace(entry, event=replace(EVALUATED, loss=float("inf"))))
    assert LineReader(folder.evaluations).read() == [
        b"time_seconds,wall_seconds,version,payload_up_bytes,loss,top1,top5,images,final",
        b"4.0,2.0,100,1600,0.1,0.975,1.0,360,true",
        b"4.0,2.0,100,1600,inf,0.975,1.0,360,true",
    ]
    assert read_events(folder.events)[0] == replace(entry, source="ps")


def test_readings_before_the_training_have_no_time(folder: RunFolder, hand: Hand) -> None:
    with Recorder.into(folder, time_scale=2.0, clock=hand.clock()) as recorder:
        recorder.traffic(READING)
        started(recorder, START)
        hand.now = START + 1.5
        recorder.traffic(READING, HostSample(0.25, 1024, 0.5))
        recorder.traffic(READING, HostSample(None, None))
    assert LineReader(folder.traffic).read()[1:] == [
        b",,2,1,2,3,4,5,6,7,8,10,9,,,,",
        b"3.0,1.5,2,1,2,3,4,5,6,7,8,10,9,0.25,1024,0.5,",
        b"3.0,1.5,2,1,2,3,4,5,6,7,8,10,9,,,,",
    ]


def test_updates_are_flushed_over_time_and_at_the_end(folder: RunFolder, hand: Hand) -> None:
    rows = np.zeros(3, UPDATE)
    with Recorder.into(folder, time_scale=1.0, clock=hand.clock()) as recorder:
        recorder.updates(rows)
        assert len(joined(read_parts(folder.updates))) == 0
        hand.now += 5
        recorder.updates(rows[:0])
        assert len(joined(read_parts(folder.updates))) == 3
        recorder.updates(rows[:1])
    assert len(joined(read_parts(folder.updates))) == 4
    recorder.close()


def test_a_table_refuses_an_unknown_column(tmp_path: Path) -> None:
    table = CsvTable(tmp_path / "t.csv", ("a", "b"))
    with pytest.raises(ValueError, match=r"t\.csv has no column c"):
        table.append({"a": 1, "c": 2})
    table.append({"b": "x, y"})
    table.close()
    again = CsvTable(tmp_path / "t.csv", ("a", "b"))
    again.close()
    assert (tmp_path / "t.csv").read_text() == 'a,b\n,"x, y"\n'


def test_a_table_started_by_another_version_keeps_its_columns(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("b,colour\n1,red\n")
    table = CsvTable(tmp_path / "t.csv", ("a", "b"))
    table.append({"a": 1, "b": 2})
    table.close()
    assert (tmp_path / "t.csv").read_text() == "b,colour\n1,red\n2,\n"


def test_a_torn_line_is_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    drop_torn_line(path)
    assert not path.exists()
    path.write_text("a,b\n1,2\n3,")
    drop_torn_line(path)
    assert path.read_text() == "a,b\n1,2\n"
    drop_torn_line(path)
    assert path.read_text() == "a,b\n1,2\n"


@pytest.mark.parametrize("jump", [-3600.0, 3600.0])
def test_a_jump_of_the_wall_clock_does_not_change_elapsed_times(
    folder: RunFolder, jump: float
) -> None:
    wall, steady = START, 50.0
    clock = Clock(wall=lambda: wall, steady=lambda: steady)
    with Recorder.into(folder, time_scale=1.0, clock=clock) as recorder:
        wall += jump
        started(recorder, START)
        assert recorder.elapsed_seconds == 0
        wall, steady = wall - 2 * jump, steady + 3
        assert recorder.elapsed_seconds == 3
