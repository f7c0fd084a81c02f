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
            "steps": [300 * one for one in times],
        }
    )
    updates = pd.DataFrame(
        {
            "staleness": [0, 1, 2, 4],
            "payload_up_bytes": [10, 10, 10, 20],
            "payload_down_bytes": [40] * 4,
            "time_seconds": [1.0, 2.0, 3.0, 3.5],
            "worker": [0, 1, 0, 1],
            "steps": [1, 1, 3, 1],
            "compute_seconds": [1.0, 1.0, 1.0, 2.0],
            "think_seconds": [0.0, 1.0, 0.0, 0.0],
            "transfer_seconds": [1.0, 1.0, 1.0, 1.0],
            "blocked_seconds": [0.0, 0.0, 0.0, 0.0],
            "stream_wait_seconds": [0.0, 0.0, 0.0, 0.0],
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
        ("steps_to(0.9)", 600, "600"),
        ("steps", 6, "6"),
        # w0: 2 s of 4, 4 steps; w1: 3 s of 6, one of which it thought, 2 steps
        ("waiting", 0.5, "50.00%"),
        ("computation", 2.5, "2.5 s"),
        ("communication", 2.0, "2.0 s"),
        ("blocked", 0.0, "0.0 s"),
        ("heterogeneity", (2 + 2 / 3) / 2 / (2 / 3), "2"),
        ("ingress_rate", 50 / 3.5, "14 B/s"),
        ("egress_rate", 160 / 3.5, "46 B/s"),
        ("time_to_loss(0.1)", 4.0, "4.0 s"),
        ("convergence_time(0.5)", inf, "never"),
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


def test_a_training_has_converged_at_its_tenth_evaluation_below_a_loss() -> None:
    """Losses of 0.1 but for the third: the tenth is the eleventh evaluation, at 22 s."""
    one = run(0.9, 0.9, 0.5, *[0.9] * 9)
    assert Measure.parse("convergence_time(0.2)").of(one) == 22
    assert Measure.parse("convergence_time(0.2)").of(run(*[0.9] * 9)) == inf
    assert Measure.parse("convergence_time(0.2)").title.endswith("a loss below 0.2")


def test_a_loss_has_settled_once_ten_in_a_row_are_alike() -> None:
    """Ten in a row from the third on: the twelfth, at 24 s. 0.1 is more than 1.05 times 0.09."""
    one = run(0.5, 0.6, *[0.9] * 11)
    assert Measure.parse("settling_time(0.1)").of(one) == 24
    assert Measure.parse("settling_time(0.09)").of(one) == inf


def test_what_was_never_evaluated_is_not_measured() -> None:
    assert isnan(Measure.parse("best_accuracy").of(run()))
    assert isnan(Measure.parse("updates_to(0.5)").of(run()))
    assert Measure.parse("best_accuracy").show(float("nan")) == "not measured"


@pytest.mark.parametrize(
    "text",
    [
        "accuracy",
        "updates_to",
        "updates_to(1.5)",
        "updates_to(0)",
        "best_accuracy(0)",
        "",
        "time_to_loss(0)",
    ],
)
def test_what_is_no_measure_is_refused(text: str) -> None:
    with pytest.raises(Unfit):
        Measure.parse(text)
