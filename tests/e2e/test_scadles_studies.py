"""Two of ScaDLES's studies, with their networks and data, for one round each."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from testbed.reports.run_measure import Measure
from testbed.studies import load_study
from testbed.studies.document import Selection
from testbed.studies.found import Results, find_runs
from testbed.studies.report import report_study

pytestmark = pytest.mark.slow

FOLDER = Path(__file__).parents[2] / "scenarios" / "scadles"
SCALE = 0.001
Measured = Callable[[str], float]


@pytest.fixture
def train(tmp_path: Path, simulate: Any) -> Callable[..., tuple[Measured, str]]:
    """Runs one case in this process; returns its measures by name, and the report."""
    if "TESTBED_DATA" not in os.environ:
        pytest.skip("needs CIFAR-10 and MNIST: set TESTBED_DATA to the folder that holds them")
    runs = tmp_path / "runs"

    def carry_out(name: str, where: Selection) -> tuple[Measured, str]:
        study = load_study(FOLDER / f"{name}.yaml", scale=SCALE)
        (case,) = study.select(where)
        (run,) = [run for run in study.runs if run.case == case]
        assert simulate(run, runs)
        one = replace(study, runs=(run,))
        results = Results(one, one, find_runs(one, runs))
        text = report_study(study, runs=runs).text
        return lambda name: results.value(run, Measure.parse(name)), text

    return carry_out


def test_one_label_per_device_with_injection(train: Callable[..., tuple[Measured, str]]) -> None:
    """Ten devices of S1' have 521 samples in a second; one shares floor(0.1 b) of 14 to 91."""
    case = {"net": "resnet", "set": "S1'", "injection": "0.1"}
    measured, report = train("fig8", case)
    assert measured("updates") == 10
    shared = measured("shared_bytes") / 3072
    assert shared in range(1, 10)
    assert measured("round_samples") == 521 + 9 * shared
    assert 0.3 < measured("final_top5") < 0.9  # of ten labels: half, if nothing were learnt
    assert "**SCALED**" in report


def test_a_round_with_a_vote(train: Callable[..., tuple[Measured, str]]) -> None:
    """837,572 values, or a tenth of each tensor."""
    measured, report = train("table5", {"net": "vgg", "cr": "0.1", "delta": "0.4"})
    assert (measured("updates"), measured("round_samples")) == (16, 915)
    assert measured("floats") == (
        837_572 if measured("cnc") == 0 else pytest.approx(83_757, abs=40)
    )
    assert measured("final_top5") < 0.5  # of a hundred labels
    assert "**SUBSTITUTE**: mnist-pair-100" in report
