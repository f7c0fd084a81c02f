"""Event files are read while they are written: no partial lines, no duplicates."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from testbed.errors import TestbedError
from testbed.telemetry.entry import Entry
from testbed.telemetry.events import EventLog, EventReader, read_events
from testbed.telemetry.ps_events import Joined, Listening, Started


def test_written_events_are_read(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    elapsed: list[float | None] = [None, 0.5]
    with closing(EventLog(path, elapsed=lambda: elapsed.pop(0), wall=lambda: 7.0)) as log:
        log.write(Listening(5000))
        assert read_events(path) == [Entry(7.0, None, Listening(5000))]
        log.write(Started())
    with closing(EventLog(path)) as log:  # existing lines are kept
        log.append(Entry(8.0, 1.0, Joined("w1"), source="ps"))
    assert read_events(path)[1:] == [
        Entry(7.0, 0.5, Started()),
        Entry(8.0, 1.0, Joined("w1"), source="ps"),
    ]


def test_a_line_is_read_once_and_only_when_complete(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    reader = EventReader(path)
    assert reader.read() == []
    path.write_text('{"time": 1, "event": "listening", "port": 5000}\n{"time": 2, "event": "jo')
    assert reader.read() == [Entry(1.0, None, Listening(5000))]
    with path.open("a") as file:
        file.write('ined", "node": "w3"}\n')
    assert reader.read() == [Entry(2.0, None, Joined("w3"))]
    assert reader.read() == []


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("[]", "expected an event"),
        ('{"time": 1, "event": "joi', "expected an event"),
        ('{"time": 1, "event": "joined"}', "its node is wrong: field required"),
        ('{"time": "now", "event": "started"}', "its time is wrong: input should be a valid num"),
        ('{"time": 1, "event": "listening", "port": "a"}', "its port is wrong: input should be"),
    ],
)
def test_a_damaged_line_is_named_wherever_it_is(tmp_path: Path, line: str, what: str) -> None:
    path = tmp_path / "events.jsonl"
    good = '{"time": 1, "event": "started"}\n'
    path.write_text(2 * good)
    reader = EventReader(path)
    assert len(reader.read()) == 2
    with path.open("a") as file:
        file.write(good + line + "\n")
    with pytest.raises(TestbedError, match=rf"events\.jsonl:4: found .*{what}"):
        reader.read()
