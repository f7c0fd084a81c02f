"""An event as it is written down: one JSON object a line."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any, TypeVar

import numpy as np
from pydantic import TypeAdapter, ValidationError

from testbed.events.kinds import EVENTS, Event, Unknown

NAMES: Mapping[type[Event], str] = {kind: name for name, kind in EVENTS.items()}
FROM_PS = "ps"
STAMP = ("time", "elapsed_seconds", "event", "source")

Kind = TypeVar("Kind", bound=Event)


@dataclass(frozen=True)
class Entry:
    """An event and when it happened."""

    time: float  # seconds since 1970
    elapsed_seconds: float | None  # real seconds since the training started, or None before
    event: Event  # what happened
    source: str | None = None  # ``ps``, of an event of its in the controller's record
    # fields of the event that only another version of testbed knows; they are kept
    others: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The event's name in the file."""
        return self.event.name if isinstance(self.event, Unknown) else NAMES[type(self.event)]

    def as_dict(self) -> dict[str, Any]:
        """What the line holds, as JSON has it."""
        event = self.event
        stamp = {"time": self.time, "elapsed_seconds": self.elapsed_seconds, "event": self.name}
        own = dict(event.fields if isinstance(event, Unknown) else vars(event))
        source = {} if self.source is None else {"source": self.source}
        made: dict[str, Any] = plain(stamp | own | dict(self.others) | source)
        return made

    def line(self) -> str:
        """The line; numbers that JSON has no word for (NaN, infinity) become null."""
        return json.dumps(self.as_dict(), allow_nan=False) + "\n"

    @classmethod
    def parse(cls, line: bytes) -> Entry:
        """The entry in a line.

        Raises:
            ValueError: it is none; says why.
        """
        try:
            content = json.loads(line)
        except ValueError:
            content = None
        if not isinstance(content, dict) or not isinstance(content.get("event"), str):
            raise ValueError("expected an event")
        own = {name: value for name, value in content.items() if name not in STAMP}
        kind = EVENTS.get(content["event"])
        event: Event = Unknown(content["event"], own)
        if kind is not None:
            known = {one.name for one in fields(kind)}
            event = _checked(content["event"], {name: own.pop(name) for name in known & own.keys()})
        stamp = {name: content.get(name) for name in STAMP if name != "event"}
        others = {} if kind is None else own
        entry: Entry = _checked("", {**stamp, "event": event, "others": others})
        return entry


def only(entries: Iterable[Entry], kind: type[Kind]) -> list[Kind]:
    """The events of one kind, in order."""
    return [entry.event for entry in entries if type(entry.event) is kind]


def plain(value: Any) -> Any:
    """A value as JSON has it: numpy's scalars as numbers, NaN and infinities as null."""
    match value:
        case Mapping():
            return {str(key): plain(inner) for key, inner in value.items()}
        case list() | tuple():
            return [plain(inner) for inner in value]
        case np.generic():
            return plain(value.item())
        case float() if not math.isfinite(value):
            return None
        case _:
            return value


def _checked(name: str, content: Mapping[str, Any]) -> Any:
    """An event of that name, or (without one) an entry, from its fields."""
    try:
        return _adapter(name).validate_python(content)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise ValueError(f"its {where} is wrong: {first['msg'].lower()}") from None


@cache
def _adapter(name: str) -> TypeAdapter[Any]:
    return TypeAdapter(EVENTS.get(name, Entry))
