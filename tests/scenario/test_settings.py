"""How far a run is from the end of its training."""

from __future__ import annotations

import pytest

from testbed.scenario.settings import Stop
from testbed.values.units import Duration

EITHER = Stop(updates=1000, time=Duration(40))


@pytest.mark.parametrize(
    ("stop", "updates", "emulated", "progress"),
    [
        (EITHER, 20, 10.0, 0.25),  # 0.02 of the updates, a quarter of the time
        (EITHER, 500, 10.0, 0.5),
        (Stop(updates=100), 104, 0.0, 1.0),  # of updates that are applied together
        (Stop(steps=100), 50, 10.0, None),
    ],
)
def test_the_nearer_limit_is_the_progress(
    stop: Stop, updates: int, emulated: float, progress: float | None
) -> None:
    assert stop.progress(updates, emulated) == progress


@pytest.mark.parametrize(
    ("updates_per_second", "pace", "left"),
    [
        (10.0, 5.0, 6.0),  # 30 s more at 5 a second; the updates would take 98 s
        (490.0, 5.0, 2.0),  # 980 updates more
        (490.0, 0.0, 2.0),
        (0.0, 0.0, None),
    ],
)
def test_the_limit_that_is_met_first_is_the_end(
    updates_per_second: float, pace: float, left: float | None
) -> None:
    found = EITHER.seconds_left(20, 10.0, updates_per_second=updates_per_second, pace=pace)
    assert found == left
