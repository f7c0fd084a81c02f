"""The numbers of a run by their names, worked by hand on three or four evaluations."""

from __future__ import annotations

from math import inf, isnan
from types import SimpleNamespace
from typing import cast

import pandas as pd
import pytest

from testbed.errors import Unfit
from testbed.reports.frames import Run
from testbed.reports.run_measure import Measure


def run(*top1: float) -> Run:
    """Evaluated every 100 updates, 2 s and 1 KB; then, on all images, at 0.91 once more."""
    times = range(1, len(top1) + 2)
    evaluations = pd.DataFrame(
        {
            "version": [100 * one for one in times],
            "time_seconds": [2.0 * one for one in times],
            "payload_up_bytes": [1000 * one for one in times],
            "top1": [*top1, 0.91],
            "loss": [1 - one for one in (*top1, 0.91)],
            "final": [False] * len(top1) + [True],
        }
    )
    updates = pd.DataFrame(
        {
            "staleness": [0, 1, 2, 4],
            "payload_up_bytes": [10, 10, 10, 20],
            "payload_down_bytes": [40] * 4,
            "time_seconds": [1.0, 2.0, 3.0, 3.5],
        }
    )
    return cast(Run, SimpleNamespace(evaluations=evaluations, updates=updates))


@pytest.mark.parametrize(
    ("text", "value", "shown"),
    [
        ("final_accuracy", 0.91, "91.00%"),
        ("final_loss", 0.09, "0.09"),
        ("best_accuracy", 0.98, "98.00%"),
        ("best_accuracy(2)", 0.95, "95.00%"),  # (0.98 + 0.92) / 2
        ("lowest_loss", 0.02, "0.02"),
        ("updates", 4, "4"),
        ("ingress", 50, "50 B"),
        ("egress", 160, "160 B"),
        ("time", 3.5, "3.5 s"),
        ("staleness", 1.75, "1.75"),
        ("damping", (1 + 1 + 0.5 + 0.25) / 4, "0.6875"),
        ("updates_to(0.9)", 200, "200"),
        ("ingress_to(0.9)", 2000, "2 KB"),
        ("time_to(0.9)", 4.0, "4.0 s"),
        ("updates_to(0.9,2)", 300, "300"),  # (0.6 + 0.98) / 2 is not enough
        ("updates_to(0.99)", inf, "never"),
    ],
)
def test_by_hand(text: str, value: float, shown: str) -> None:
    measure = Measure.parse(text)
    assert measure.of(run(0.6, 0.98, 0.92)) == pytest.approx(value)
    assert measure.show(value) == shown
    assert str(measure) == text


def test_a_mean_of_ten_is_not_there_before_there_are_ten() -> None:
    assert isnan(Measure.parse("best_accuracy(10)").of(run(*[0.9] * 9)))
    assert Measure.parse("best_accuracy(10)").of(run(*[0.9] * 10)) == pytest.approx(0.9)
    assert Measure.parse("updates_to(0.5,10)").of(run(*[0.9] * 9)) == inf


def test_what_was_never_evaluated_is_not_measured() -> None:
    assert isnan(Measure.parse("best_accuracy").of(run()))
    assert isnan(Measure.parse("updates_to(0.5)").of(run()))
    assert Measure.parse("best_accuracy").show(float("nan")) == "not measured"


@pytest.mark.parametrize(
    "text", ["accuracy", "updates_to", "updates_to(1.5)", "updates_to(0)", "best_accuracy(0)", ""]
)
def test_what_is_no_measure_is_refused(text: str) -> None:
    with pytest.raises(Unfit):
        Measure.parse(text)
