"""When the model is evaluated."""

import pytest

from testbed.frame.evaluation import Due, Schedule


@pytest.mark.parametrize(
    ("schedule", "version", "time", "due"),
    [
        (Schedule(20, None), 0, 0.0, Due(version=20)),
        (Schedule(20, None), 20, 1.0, Due(version=40)),
        (Schedule(20, None), 59, 1.0, Due(version=60)),  # what was missed is not made up for
        (Schedule(None, 5.0), 7, 0.0, Due(time=5.0)),
        (Schedule(None, 5.0), 7, 12.5, Due(time=15.0)),
    ],
)
def test_when_the_next_evaluation_is_due(
    schedule: Schedule, version: int, time: float, due: Due
) -> None:
    assert schedule.after(version, time) == due
