"""The difference between two runs, worked by hand on update records of four rows."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pandas as pd
import pytest

from testbed.cli.report import print_scenarios
from testbed.errors import NodeError
from testbed.reports.compare import compare, scenario_differences
from testbed.reports.frames import Run
from testbed.scenario import load_text
from testbed.scenario.settings import Evaluate

SCENARIO = """\
name: one
algorithm: {asgd: {learning_rate: 0.1}}
model: digits-cnn
dataset: digits
workers: {count: 3}
stop: {updates: 100}
"""


def evaluated(*top1: float, final: bool = True) -> pd.DataFrame:
    """Evaluations every 10 updates and 5 emulated seconds; the last one is after the end."""
    many = range(1, len(top1) + 1)
    return pd.DataFrame(
        {
            "version": [10 * one for one in many],
            "time_seconds": [5.0 * one for one in many],
            "payload_up_bytes": [1000 * one for one in many],
            "top1": top1,
            "loss": [1 - one for one in top1],
            "final": [False] * (len(top1) - 1) + [final],
        }
    )


def run(
    evaluations: pd.DataFrame | None = None, encoding: str = "raw", **columns: list[Any]
) -> Run:
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
    evaluations = evaluated(0.5, 0.8, 0.8) if evaluations is None else evaluations
    scenario = SimpleNamespace(encoding=encoding, evaluate=Evaluate(every=10))
    return cast(Run, SimpleNamespace(updates=frame, evaluations=evaluations, scenario=scenario))


def ratios(first: Run, second: Run) -> dict[str, float]:
    return {one.measure: one.ratio for one in compare(first, second)}


def test_a_difference_of_traffic_names_both_encodings() -> None:
    assert ratios(run(), run())["ingress"] == 0
    half = run(encoding="packed", payload_up_bytes=[40] * 4)
    assert ratios(run(), half)["ingress (raw / packed)"] == 0.5


def test_equal_runs_do_not_differ() -> None:
    found = ratios(run(), run())
    assert set(found.values()) == {0.0}
    assert len(found) == 9 + 5


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
    with pytest.raises(NodeError, match="nothing to compare"):
        compare(run(), empty)


def test_accuracies_by_their_difference() -> None:
    found = ratios(run(evaluated(0.5, 0.54)), run(evaluated(0.5, 0.89)))
    assert found["final accuracy, all test samples"] == pytest.approx(0.35)
    assert found["best accuracy during training"] == 0.0
    assert found["final loss, all test samples"] == pytest.approx(0.35 / 0.46)


def test_bytes_relative_to_the_larger() -> None:
    found = ratios(run(), run(payload_up_bytes=[80, 80, 80, 160]))
    assert found["ingress"] == pytest.approx(80 / 400)
    assert found["egress"] == 0.0


def test_the_cost_to_an_accuracy() -> None:
    slow, fast = run(evaluated(0.5, 0.7, 0.9, 0.9)), run(evaluated(0.6, 0.9, 0.9, 0.9))
    found = {one.measure: one for one in compare(slow, fast, accuracy=0.85)}
    time = found["emulated time to 85 %"]
    assert (time.first, time.second) == (15.0, 10.0)
    assert time.ratio == pytest.approx(1 / 3)
    never = {one.measure: one for one in compare(slow, fast, accuracy=0.99)}["updates to 99 %"]
    assert (never.first, never.second, never.ratio) == (float("inf"), float("inf"), 0.0)
    one_only = {one.measure: one for one in compare(slow, run(evaluated(0.5, 0.5)), accuracy=0.6)}
    assert one_only["updates to 60 %"].ratio == 1.0


def test_values_measured_in_only_one_run_have_the_maximum_difference() -> None:
    found = ratios(run(evaluated(0.5, 0.5, final=False)), run())
    assert found["final accuracy, all test samples"] == 1.0


def scenario(text: str) -> Run:
    return cast(Run, SimpleNamespace(scenario=load_text(text)))


def test_differences_between_scenarios_except_their_names() -> None:
    other = SCENARIO.replace("name: one", "name: two").replace("0.1", "0.2")
    assert scenario_differences([scenario(SCENARIO), scenario(SCENARIO)]) == {}
    found = scenario_differences([scenario(SCENARIO), scenario(other)])
    assert found == {"algorithm.learning_rate": (0.1, 0.2)}
    comp = SCENARIO.replace("{asgd: {learning_rate: 0.1}}", "{comp-asgd: {ratio: 0.5}}")
    found = scenario_differences([scenario(SCENARIO), scenario(comp), scenario(other)])
    assert found["algorithm.name"] == ("asgd", "comp-asgd", "asgd")
    assert found["algorithm.ratio"] == (None, 0.5, None)


def test_a_long_value_is_wrapped_without_loss(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Ten faults make a value of about 2,000 characters, which is shown completely."""
    many = ", ".join([f"{{slow: {{at: {{time: {n}s}}, for: 1s, factor: 2}}}}" for n in range(10)])
    text = f"{SCENARIO}faults: [{many}]\n"
    runs = [
        cast(Run, SimpleNamespace(name=name, scenario=load_text(each)))
        for name, each in (("plain", SCENARIO), ("faulty", text))
    ]
    print_scenarios(runs)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) < 120
    assert sum(line.count("factor") for line in lines) == 10
