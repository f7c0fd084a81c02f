"""Events as lines: they are read as written, and those of other versions are kept."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any, get_args, get_type_hints

import pytest

from testbed.telemetry.entry import NAMES, Entry, only
from testbed.telemetry.event import CONTROLLER, PS, ControllerEvent, Event, PsEvent, Unknown
from testbed.telemetry.event_kinds import EVENTS, Exited
from testbed.telemetry.ps_events import Finished, Incomplete, Left, Rejected

VALUES: Mapping[Any, Any] = {
    str: "a word",
    int: 3,
    float: 2.5,
    bool: True,
    tuple[str, ...]: ("a", "b"),
    Mapping[str, int]: {"w0": 1},
    Mapping[str, float]: {"w0": 0.5},
    Mapping[str, float | None]: {"top1": 0.5, "auroc": None},
    Mapping[str, Any]: {"rate": "1mbit"},
}


def sample(kind: type[Event]) -> Event:
    """An event with a value in every field."""
    values: dict[str, Any] = {}
    for name, hint in get_type_hints(kind).items():
        options = [option for option in get_args(hint) if option is not type(None)]
        plain = hint in VALUES
        values[name] = VALUES[hint] if plain else VALUES.get(options[0], options[0])
    return kind(**values)


@pytest.mark.parametrize("name", EVENTS)
def test_every_event_is_read_as_it_was_written(name: str) -> None:
    entry = Entry(1.5, None, sample(EVENTS[name]))
    assert json.loads(entry.line())["event"] == name
    assert Entry.parse(entry.line().encode()) == entry


def test_every_kind_of_event_is_listed_once() -> None:
    kinds = {*ControllerEvent.__subclasses__(), *PsEvent.__subclasses__()}
    assert set(NAMES) == kinds
    assert len(EVENTS) == len(CONTROLLER) + len(PS) == len(kinds)


@pytest.mark.parametrize("name", EVENTS)
def test_everything_is_documented(name: str) -> None:
    kind = EVENTS[name]
    assert kind.__doc__
    assert not kind.__doc__.startswith(kind.__name__), "needs its own docstring"
    for field, hint in get_type_hints(kind, include_extras=True).items():
        assert isinstance(hint.__metadata__[0], str), field


def test_the_current_format_of_a_line() -> None:
    entry = Entry(1700000000.25, 1.5, Exited("w3", -9), source="ps")
    assert entry.line() == (
        '{"time": 1700000000.25, "elapsed_seconds": 1.5, "event": "exited", "node": "w3", '
        '"status": -9, "planned": false, "how": "", "ends_run": false, "restarted": false, '
        '"container_ended": false, "host_lost": false, '
        '"source": "ps"}\n'
    )


def test_an_event_of_another_version_is_kept() -> None:
    line = '{"time": 1.0, "elapsed_seconds": 2.0, "event": "voted", "for": "w1", "source": "ps"}\n'
    entry = Entry.parse(line.encode())
    assert entry == Entry(1.0, 2.0, Unknown("voted", {"for": "w1"}), source="ps")
    assert entry.line() == line
    assert type(entry.event) not in PS.values()


def test_a_field_of_another_version_is_kept_with_the_event() -> None:
    line = '{"time": 1.0, "elapsed_seconds": null, "event": "joined", "node": "w1", "slot": 4}\n'
    entry = Entry.parse(line.encode())
    assert entry.others == {"slot": 4}
    assert entry.line() == line


def test_a_field_missing_in_an_older_version_gets_its_default() -> None:
    line = b'{"time": 1, "event": "finished", "reason": "6 updates applied", "version": 6}'
    assert Entry.parse(line).event == Finished("6 updates applied", 6, stalled=False)


def test_a_field_that_older_lines_may_lack_is_last() -> None:
    """So that positional arguments keep their meaning."""
    for kind in EVENTS.values():
        have_default = [field.default is not MISSING for field in fields(kind)]
        assert have_default == sorted(have_default), kind


def test_events_of_one_kind() -> None:
    events = (Left("w1"), Rejected("w1", "NaN"), Incomplete("w2", "short"), Left("w2", "died"))
    entries = [Entry(0.0, None, event) for event in events]
    assert only(entries, Left) == [Left("w1"), Left("w2", "died")]
    assert only(entries, Rejected) == [Rejected("w1", "NaN")]
