"""The measures of a run by name, worked by hand on three or four evaluations."""

from __future__ import annotations

from math import acos, inf, isnan, nan, pi
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pandas as pd
import pytest

from testbed.algorithms import Adsp, Bsp
from testbed.errors import InvalidValue
from testbed.reports.frames import Run
from testbed.reports.registry import MEASURES, UNITS
from testbed.reports.run_measure import Measure, compared_title
from testbed.scenario.schema import Scenario
from testbed.scenario.settings import Evaluate
from testbed.scenario.workload import Workload
from testbed.values.units import Duration


def run(*top1: float) -> Run:
    """Evaluated every 100 updates, 2 s and 1 KB; then once more on all images, at 0.91."""
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
            "sigma_mean": [0.0, 0.5, 0.5, 0.75],
            "pickle9_bytes": [20, 20, 20, 40],
            "version_applied": [0, 1, 2, 3],
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
    adsp = Adsp(name="adsp", check_period=Duration(6))
    scenario = SimpleNamespace(algorithm=adsp, evaluate=Evaluate(every=100))
    tables = SimpleNamespace(evaluations=evaluations, updates=updates, scenario=scenario)
    return cast(Run, tables)


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
        ("sigma", 0.4375, "0.4375"),
        ("sigma_ratio", 0.25, "0.25"),
        ("update_bytes", 12.5, "12 B"),
        ("pickle9_update_bytes", 25, "25 B"),
        # Of staleness 2 and 4: twice what tests/reports/test_stability.py has for 1 and 2.
        ("verge_period(2)", 2 * pi / acos((3**0.5 - 1) / 2), "5"),
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
        # Γ = 6 s: w0 has 3 commits and 12 steps in it, w1 2 and 4: (1/36 + 1/8) / 2 = 11/144
        ("implicit_momentum", 1 - 1 / (1 + 11 / 144), "0.07097"),
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


def test_a_mean_of_ten_needs_ten_values() -> None:
    assert isnan(Measure.parse("best_accuracy(10)").of(run(*[0.9] * 9)))
    assert Measure.parse("best_accuracy(10)").of(run(*[0.9] * 10)) == pytest.approx(0.9)
    assert Measure.parse("updates_to(0.5,10)").of(run(*[0.9] * 9)) == inf


def test_a_training_has_converged_at_its_tenth_evaluation_below_a_loss() -> None:
    """Losses of 0.1 except the third: the tenth is the eleventh evaluation, at 22 s."""
    one = run(0.9, 0.9, 0.5, *[0.9] * 9)
    assert Measure.parse("convergence_time(0.2)").of(one) == 22
    assert Measure.parse("convergence_steps(0.2)").of(one) == 3300
    assert Measure.parse("convergence_steps(0.2)").show(3300) == "3,300"
    assert Measure.parse("convergence_time(0.2)").of(run(*[0.9] * 9)) == inf
    assert Measure.parse("convergence_time(0.2)").title.endswith("a loss below 0.2")


REQUESTED = run(*[0.9] * 25)
"""Evaluated every 2 s, scheduled every 4 s: at 2, 4, 8, 12, ..., the first of each period."""
REQUESTED.scenario.evaluate = Evaluate(every=Duration(4))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("convergence_time(0.2)", 36),
        ("convergence_steps(0.2)", 5400),
        ("settling_time(0.11)", 36),
        ("time_to(0.9,10)", 36),
        ("updates_to(0.9,10)", 1800),
        ("time_to_loss(0.2)", 2),
        ("best_accuracy(13)", 0.9),
        ("best_accuracy(14)", nan),  # 13 of 25 were due
    ],
)
def test_evaluations_that_an_algorithm_requests_do_not_count(text: str, value: float) -> None:
    assert Measure.parse(text).of(REQUESTED) == pytest.approx(value, nan_ok=True)


def test_the_best_and_the_last_are_of_scheduled_evaluations() -> None:
    """Due are those at 2, 4 and 8 s. At 6 s, an algorithm requested the best and the fastest."""
    one = run(0.2, 0.4, 0.9, 0.6, 0.5)
    one.scenario.evaluate = Evaluate(every=Duration(4))
    one.updates["pickle9_bytes"] = [0, 0, 0, 9]
    values = {
        "best_accuracy": 0.6,
        "last_accuracy": 0.6,
        "lowest_loss": 0.4,
        "time_to(0.9)": inf,
        "time_to(0.5)": 8,
        "time_to_loss(0.55)": 8,
        "pickle9_to(0.9)": inf,
    }
    assert {text: Measure.parse(text).of(one) for text in values} == pytest.approx(values)
    assert Measure.parse("time_to(0.9)").censored_at(one) == 8


def test_only_runs_with_check_periods_have_an_implicit_momentum() -> None:
    bsp = run(0.9)
    bsp.scenario.algorithm = Bsp(name="bsp")
    assert isnan(Measure.parse("implicit_momentum").of(bsp))


def test_a_loss_has_settled_after_ten_similar_values() -> None:
    """Ten in a row from the third on: the twelfth, at 24 s. 0.1 is more than 1.05 times 0.09."""
    one = run(0.5, 0.6, *[0.9] * 11)
    assert Measure.parse("settling_time(0.1)").of(one) == 24
    assert Measure.parse("settling_time(0.09)").of(one) == inf


@pytest.mark.parametrize("text", ["loss_period(0)", "loss_period(9000)", "verge_period(9000)"])
def test_too_few_evaluations_give_no_period(text: str) -> None:
    """Four evaluations, none, and no update."""
    assert isnan(Measure.parse(text).of(run(0.6, 0.98, 0.92)))


def test_runs_that_were_never_evaluated_are_not_measured() -> None:
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
def test_an_unknown_measure_is_refused(text: str) -> None:
    with pytest.raises(InvalidValue):
        Measure.parse(text)


@pytest.mark.parametrize("text", ["final_accuracy", "best_accuracy(2)", "updates_to(0.9)"])
def test_a_run_without_an_accuracy(text: str) -> None:
    """Numeric targets have losses: an accuracy is "not measured", rather than "never"."""
    one = run(0.5, 0.9)
    one.evaluations["top1"] = float("nan")
    assert isnan(Measure.parse(text).of(one))
    assert Measure.parse("lowest_loss").of(one) == pytest.approx(0.1)


@pytest.mark.parametrize("name", MEASURES)
def test_every_measure_has_a_known_unit_and_is_documented(name: str) -> None:
    assert MEASURES[name].unit in UNITS
    assert f"`{name}" in (Path(__file__).parents[2] / "docs" / "studies.md").read_text()


def test_a_comparison_says_that_the_best_value_is_one_during_training() -> None:
    """The summary's best value includes the final evaluation; a workload has none."""
    training, workload = Scenario.model_construct(), Workload.model_construct()
    best, final = Measure("best_accuracy"), Measure("final_accuracy")
    assert compared_title(best, [training, training]) == "best accuracy during training"
    assert compared_title(best, [workload, workload]) == "best accuracy"
    assert compared_title(final, [training, training]) == final.title
