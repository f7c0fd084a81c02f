"""Stored events: one JSON object per line."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from reprlib import repr as shortened
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from testbed.telemetry.event import PS, Event, Unknown
from testbed.telemetry.event_kinds import EVENTS
from testbed.telemetry.ps_events import Evaluated

NAMES: Mapping[type[Event], str] = {kind: name for name, kind in EVENTS.items()}
FROM_PS = "ps"
STAMP = ("time", "elapsed_seconds", "event", "source")
LARGEST_NUMBER = 2**63 - 1  # the maximum in tables
LATEST = 253_402_300_799.0  # the last second of the year 9999
METRIC = r"[A-Za-z_][A-Za-z0-9_]{0,59}"
"""A metric's name: a column of ``evaluations.csv``."""

_UNFIT = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
"""Invalid in text for a terminal or a file: control characters and lone surrogates."""

Kind = TypeVar("Kind", bound=Event)


@dataclass(frozen=True)
class Entry:
    """An event and its time."""

    time: float  # seconds since 1970
    elapsed_seconds: float | None  # real seconds since the training started, or None before
    event: Event  # what happened
    source: str | None = None  # ``ps`` for the parameter server's events in the controller's record
    # fields of the event that only another version of testbed knows; they are preserved
    others: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The event's name in the file."""
        return self.event.name if isinstance(self.event, Unknown) else NAMES[type(self.event)]

    def as_dict(self) -> dict[str, Any]:
        """Return the content of the line, as JSON types."""
        event = self.event
        stamp = {"time": self.time, "elapsed_seconds": self.elapsed_seconds, "event": self.name}
        own = dict(event.written())
        source = {} if self.source is None else {"source": self.source}
        made: dict[str, Any] = plain(stamp | own | dict(self.others) | source)
        return made

    def line(self) -> str:
        """Return the line; numbers that JSON lacks (NaN, infinity) become null."""
        return json.dumps(self.as_dict(), allow_nan=False) + "\n"

    def describe(self) -> str:
        """Return all fields of the event that are not empty, on a single line."""
        return " ".join(
            f"{name}={_word(value)}"
            for name, value in self.as_dict().items()
            if name not in STAMP and value not in (None, "", [], {})
        )

    @classmethod
    def parse(cls, line: bytes) -> Entry:
        """Parse a line.

        Raises:
            ValueError: it is not an entry; says why.
        """
        try:
            content = json.loads(line)
        except (ValueError, RecursionError):
            content = None
        if not isinstance(content, dict) or not isinstance(content.get("event"), str):
            raise ValueError("expected an event")
        own = {name: value for name, value in content.items() if name not in STAMP}
        kind = EVENTS.get(content["event"])
        event: Event = Unknown(content["event"], own)
        if kind is not None:
            known = {one.name for one in fields(kind)}
            given = {name: own.pop(name) for name in known & own.keys()}
            if kind is Evaluated:
                given["metrics"] = {name: own.pop(name) for name in [*own] if _is_metric(own[name])}
            event = _checked(content["event"], given)
        stamp = {name: content.get(name) for name in STAMP if name != "event"}
        others = {} if kind is None else own
        entry: Entry = _checked("", {**stamp, "event": event, "others": others})
        return entry


def only(entries: Iterable[Entry], kind: type[Kind]) -> list[Kind]:
    """Return the events of one kind, in order."""
    return [entry.event for entry in entries if type(entry.event) is kind]


def check_from_ps(entry: Entry) -> None:
    """Refuse an event that the parameter server cannot have written; other code in its node can.

    Raises:
        ValueError: the event is the controller's, or a field is out of range; says which.
    """
    event = entry.event
    if type(event) not in (*PS.values(), Unknown):
        raise ValueError("expected an event of the parameter server")
    if not 0 <= entry.time <= LATEST:
        raise ValueError("its time is missing")
    for name, value in {**vars(event), "elapsed_seconds": entry.elapsed_seconds}.items():
        if not all(map(_is_sound, value if isinstance(value, tuple) else (value,))):
            raise ValueError(f"its {name} is out of range")
    if isinstance(event, Evaluated):
        for name, value in event.metrics.items():
            if not (re.fullmatch(METRIC, name) and _is_sound(value)):
                raise ValueError(f"its metric {shortened(name)} is out of range")
        if event.images < 1 or event.time_seconds < 0:
            raise ValueError("its images or time_seconds are out of range")


def _is_sound(value: Any) -> bool:
    match value:
        case int():
            return 0 <= value <= LARGEST_NUMBER
        case float():
            return math.isfinite(value)
        case str():
            return _UNFIT.search(value) is None
    return True


def _word(value: Any) -> str:
    """Format a value on a single line, regardless of its content."""
    if isinstance(value, list):
        return ",".join(map(_word, value))
    is_plain = isinstance(value, str) and value.isprintable() and " " not in value
    return value if is_plain else json.dumps(value)


def _is_metric(value: Any) -> bool:
    """Whether a field of an evaluation that is none of its own is a metric."""
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def plain(value: Any) -> Any:
    """Convert a value to JSON types: numpy scalars to numbers, NaN and infinities to null."""
    match value:
        case Mapping():
            return {str(key): plain(inner) for key, inner in value.items()}
        case list() | tuple():
            return [plain(inner) for inner in value]
        case float() if not math.isfinite(value):
            return None
        case _ if hasattr(value, "item"):  # a numpy scalar, told without importing numpy
            return plain(value.item())
        case _:
            return value


def _checked(name: str, content: Mapping[str, Any]) -> Any:
    """Build the event of that name, or an entry if there is none, from its fields."""
    try:
        return _adapter(name).validate_python(content)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise ValueError(f"its {where} is wrong: {first['msg'].lower()}") from None


@cache
def _adapter(name: str) -> TypeAdapter[Any]:
    return TypeAdapter(EVENTS.get(name, Entry))
