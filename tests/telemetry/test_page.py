"""The tables of docs/run-folder.md are generated from the declarations.

    python tests/telemetry/test_page.py

writes them between ``<!-- table: NAME -->`` and ``<!-- end -->``, replacing the old ones.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import get_type_hints

from testbed.telemetry import event_kinds  # noqa: F401 - which declares the controller's
from testbed.telemetry.event import CONTROLLER, PS, Event
from testbed.telemetry.rows import (
    EVALUATIONS,
    LINKS,
    METRICS,
    NODES,
    OTHER_HOSTS,
    PAIRS_OF_NODES,
    STREAMS,
    TRAFFIC,
    UPDATES,
    Column,
)

PAGE = Path(__file__).parents[2] / "docs" / "run-folder.md"
MARKED = re.compile(r"(<!-- table: (\w+) -->\n).*?(<!-- end -->\n)", re.DOTALL)
UNITS = {"_seconds": "s", "_bytes": "bytes", "_ratio": "ratio", "_packets": "packets"}
TYPES = {"<f8": "float64", "<f4": "float32", "<i8": "int64", "<i4": "int32", "Int64": "int"}


def renewed(page: str) -> str:
    """A page with its marked tables as generated."""
    tables = {
        "updates": of_columns(UPDATES),
        "streams": of_columns(STREAMS),
        "evaluations": of_columns(EVALUATIONS),
        "traffic": of_columns(TRAFFIC),
        "links": of_columns(LINKS),
        "nodes": of_columns(NODES),
        "pairs": of_columns(PAIRS_OF_NODES),
        "hosts": of_columns(OTHER_HOSTS),
        "metrics": of_columns(METRICS),
        "controller": of_events(CONTROLLER),
        "ps": of_events(PS),
    }
    assert {found[1] for found in MARKED.findall(page)} == tables.keys()
    return MARKED.sub(lambda found: f"{found[1]}{tables[found[2]]}{found[3]}", page)


def of_columns(columns: Mapping[str, Column]) -> str:
    rows = (
        (f"`{name}`", TYPES.get(one.type, one.type), unit(name, one), one.meaning, one.source)
        for name, one in columns.items()
    )
    return table(("column", "type", "unit", "", "read from"), rows)


def of_events(events: Mapping[str, type[Event]]) -> str:
    rows = ((f"`{name}`", kind.__doc__ or "", of_fields(kind)) for name, kind in events.items())
    return table(("event", "", "fields"), rows)


def of_fields(kind: type[Event]) -> str:
    hints = get_type_hints(kind, include_extras=True)
    return "<br>".join(f"`{name}`: {hint.__metadata__[0]}" for name, hint in hints.items())


def unit(name: str, column: Column) -> str:
    return column.unit or next((UNITS[end] for end in UNITS if name.endswith(end)), "")


def table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = (head, ("---",) * len(head), *rows)
    return "".join(f"| {' | '.join(cells)} |\n".replace("|  |", "| |") for cells in lines)


def test_the_page_matches_the_declarations() -> None:
    page = PAGE.read_text()
    assert renewed(page) == page, "type: python tests/telemetry/test_page.py"


if __name__ == "__main__":
    PAGE.write_text(renewed(PAGE.read_text()))
