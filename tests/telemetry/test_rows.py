"""The columns of the tables: their layout, and how rows of other versions fit."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest

from testbed.network.counters import Traffic
from testbed.telemetry.rows import (
    EVALUATIONS,
    REQUIRED,
    TRAFFIC,
    UPDATE,
    UPDATES,
    TrafficRow,
    UpdateRow,
    conform,
)

FIRST = {
    name: np.arange(2, dtype=column.type)
    for name, column in UPDATES.items()
    if column.default is REQUIRED
}
"""Two rows with the columns that all versions of testbed have written."""


def test_a_row_is_built_by_name_in_the_order_of_the_table() -> None:
    values = {name: number for number, name in enumerate(reversed(UPDATES))}
    rows = np.zeros(2, UPDATE)
    rows[1] = UpdateRow(**values)
    assert {name: rows[1][name] for name in UPDATES} == values
    assert UPDATE.names == tuple(UPDATES) == UpdateRow._fields


def test_a_column_that_did_not_exist_yet_gets_its_default() -> None:
    rows = conform(FIRST, 2)
    assert rows.dtype == UPDATE
    assert [(row["sequence"], row["steps"], row["messages"]) for row in rows] == [
        (0, 1, 0),
        (1, 1, 0),
    ]


def test_a_removed_column_is_skipped() -> None:
    rows = conform({**FIRST, "steps": np.array([2, 3]), "colour": np.array([7, 7])}, 2)
    assert rows.dtype == UPDATE
    assert rows["steps"].tolist() == [2, 3]


def test_a_column_without_a_default_is_required() -> None:
    stored = {name: values for name, values in FIRST.items() if name != "version_pulled"}
    with pytest.raises(KeyError, match="version_pulled"):
        conform(stored, 2)


def test_the_header_of_evaluations() -> None:
    assert ",".join(EVALUATIONS) == (
        "time_seconds,wall_seconds,version,payload_up_bytes,loss,images,final"
    )


def test_the_counters_match_the_table() -> None:
    own = {"time_seconds", "wall_seconds"}
    host = {"host_busy_ratio", "host_available_bytes", "host_pressure_ratio"}
    of_workloads = {"peers", "pairs", "frames"}
    assert {field.name for field in fields(Traffic)} - of_workloads == TRAFFIC.keys() - own - host
    assert tuple(TRAFFIC) == TrafficRow._fields
