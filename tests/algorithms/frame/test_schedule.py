"""When the model is evaluated."""

import pytest

from testbed.algorithms.frame.stop import Due, Schedule


@pytest.mark.parametrize(
    ("schedule", "version", "time", "due"),
    [
        (Schedule(20, None), 0, 0.0, Due(version=20)),
        (Schedule(20, None), 20, 1.0, Due(version=40)),
        (Schedule(20, None), 59, 1.0, Due(version=60)),  # missed evaluations are skipped
        (Schedule(None, 5.0), 7, 0.0, Due(time=5.0)),
        (Schedule(None, 5.0), 7, 12.5, Due(time=15.0)),
    ],
)
def test_the_next_evaluation_is_due_on_schedule(
    schedule: Schedule, version: int, time: float, due: Due
) -> None:
    assert schedule.after(version, time) == due


def test_each_multiple_follows_the_previous_one_despite_rounding() -> None:
    """3 * 0.3 is 0.8999999999999999, of which 0.3 fits in only twice, rounded down."""
    schedule, time = Schedule(None, 0.3), 0.0
    for multiple in range(1, 10_000):
        time = schedule.after(0, time).time
        assert time == pytest.approx(multiple * 0.3)
