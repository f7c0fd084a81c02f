"""How far two runs are apart, worked by hand on update records of four rows."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pandas as pd
import pytest

from testbed.reports.compare import compare
from testbed.reports.frames import Run


def run(**columns: list[Any]) -> Run:
    frame = pd.DataFrame(
        {
            "payload_up_bytes": [80, 80, 80, 80],
            "payload_down_bytes": [400, 400, 400, 400],
            "staleness": [0, 1, 2, 1],
            "step_scale": [1.0, 1.0, 0.5, 1.0],
            "device_class": ["fast", "fast", "slow", "fast"],
            "time_seconds": [1.0, 2.0, 3.0, 4.0],
            **columns,
        }
    )
    return cast(Run, SimpleNamespace(updates=frame))


def ratios(first: Run, second: Run) -> dict[str, float]:
    return {one.measure: one.ratio for one in compare(first, second)}


def test_equal_runs_do_not_differ() -> None:
    found = ratios(run(), run())
    assert set(found.values()) == {0.0}
    assert len(found) == 9


def test_means_by_their_relative_difference() -> None:
    found = ratios(run(), run(payload_up_bytes=[80, 80, 80, 160]))
    assert found["payload of a push (bytes, mean)"] == pytest.approx(0.2)  # 80 of 100


def test_classes_by_their_share_of_the_updates() -> None:
    found = ratios(run(), run(device_class=["fast", "fast", "slow", "slow"]))
    assert found["share of class fast"] == pytest.approx(0.25)
    assert found["share of class slow"] == pytest.approx(0.25)


def test_distributions_by_their_largest_distance() -> None:
    # Cumulative shares at 0, 1, 2: .25 .75 1 against 0 .25 1.
    found = ratios(run(), run(staleness=[1, 2, 2, 2]))
    assert found["distribution of staleness"] == pytest.approx(0.5)
    # 1/max(1, s): (1 + 1 + .5 + 1)/4 = .875 against (1 + 3 x .5)/4 = .625.
    assert found["1/max(1, staleness) (mean)"] == pytest.approx(0.25 / 0.875)


def test_pace_by_the_time_between_updates() -> None:
    found = ratios(run(), run(time_seconds=[1.0, 2.0, 4.0, 5.0]))
    assert found["time between updates (s, mean)"] == pytest.approx(0.2)  # 1.00 and 1.25 s


def test_a_run_without_updates_cannot_be_compared() -> None:
    empty = cast(Run, SimpleNamespace(updates=run().updates.iloc[:0]))
    assert compare(run(), empty) == []
