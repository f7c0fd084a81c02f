"""Missed evaluations, by hand."""

from __future__ import annotations

import pandas as pd
import pytest

from testbed.reports.waiting import missed_evaluations
from testbed.scenario import Scenario, load_text

TEXT = """
name: tiny
algorithm: asgd
model: digits-cnn
dataset: digits
workers: {count: 2}
stop: {updates: 500}
evaluate: {every: %s}
"""


ONE_BY_ONE = pd.DataFrame({"time_seconds": range(502)})


def table(*during: float, end: float) -> pd.DataFrame:
    """Evaluations at these versions, or times, and the one after the end."""
    moments = [*during, end]
    finals = [False] * len(during) + [True]
    return pd.DataFrame({"version": moments, "time_seconds": moments, "final": finals})


def every(what: str) -> Scenario:
    return load_text(TEXT % what)


@pytest.mark.parametrize(
    ("during", "missed"),
    [
        ([100, 200, 300, 400], 0),
        ([100, 203, 300, 400, 500], 0),  # a little late, live; and at the very end as well
        ([100, 350, 400], 1),  # missing that of 200: the one at 350 is for 300
        ([], 4),
    ],
)
def test_by_versions(during: list[float], missed: int) -> None:
    """Every 100 of 500 updates: at 100, 200, 300 and 400; at 500 the training ends."""
    assert missed_evaluations(table(*during, end=500), ONE_BY_ONE, every("100")) == missed


def test_by_time() -> None:
    """Every 2 s of 7 s: at 2, 4 and 6 s, and that at 4 s was missed."""
    assert missed_evaluations(table(2.1, 6.3, end=7.0), ONE_BY_ONE, every("2s")) == 1


def test_a_round_that_ends_after_the_last_update() -> None:
    """The 500th of 502 updates was in a round of four that ended the training."""
    assert missed_evaluations(table(100, 202, 302, 402, end=502), ONE_BY_ONE, every("100")) == 0


def test_an_end_that_is_detected_late() -> None:
    """The training ends at 8 s, which is detected a hundredth of a second later."""
    text = TEXT.replace("updates: 500", "time: 8s") % "2s"
    assert missed_evaluations(table(2.1, 6.3, end=8.01), ONE_BY_ONE, load_text(text)) == 1


def test_a_run_that_was_never_evaluated() -> None:
    assert missed_evaluations(table(end=0)[:0], ONE_BY_ONE, every("100")) == 0


def test_evaluations_exactly_at_their_times() -> None:
    """Every 0.1 s of 2 s, at 0.1, 0.2 ... 1.9 s, however 0.3 / 0.1 is rounded."""
    text = TEXT.replace("updates: 500", "time: 2s") % "100ms"
    moments = [number / 10 for number in range(1, 20)]
    assert missed_evaluations(table(*moments, end=2.0), ONE_BY_ONE, load_text(text)) == 0


def test_a_round_has_one_evaluation_for_all_that_are_due() -> None:
    """Rounds of five updates: in 6 to 10, evaluations at 6, 8 and 10 are due at once."""
    rounds = pd.DataFrame({"time_seconds": [one // 5 * 0.58 for one in range(20)]})
    text = load_text(TEXT.replace("updates: 500", "updates: 20") % "2")
    assert missed_evaluations(table(5, 10, 15, end=20), rounds, text) == 0
    assert missed_evaluations(table(5, 15, end=20), rounds, text) == 3  # at 6, 8 and 10
