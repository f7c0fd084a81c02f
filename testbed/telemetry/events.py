"""Events as lines of JSON: how they are written and read back."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from testbed.errors import TestbedError
from testbed.telemetry.tables import complete_lines

Event = dict[str, Any]


def event_line(event: Mapping[str, Any]) -> str:
    """An event as a line of JSON; numbers that JSON has no word for (NaN, infinity) become null."""
    return json.dumps(plain(event), allow_nan=False) + "\n"


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


def read_events(path: Path) -> list[Event]:
    """The events in a file of JSON lines, without a last line that is not complete.

    A file that does not exist has none.

    Raises:
        TestbedError: a line is damaged; names it.
    """
    return [
        _parse(line, path=path, number=number)
        for number, line in enumerate(complete_lines(path), start=1)
    ]


def _parse(line: bytes, *, path: Path, number: int) -> Event:
    try:
        event = json.loads(line)
    except ValueError:
        event = None
    if isinstance(event, dict) and isinstance(event.get("event"), str):
        return event
    raise TestbedError(
        f"{path}:{number}: found {line[:60]!r}, expected an event.",
        hint="The file is damaged; remove that line to read the rest.",
    )
