"""Metrics by name, from the scenario to a study's report, in simulated runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed import Run
from testbed.cli import main

SCENARIO = """\
name: named
runtime: simulated
algorithm: asgd
model: digits-cnn
dataset: digits
workers: {count: 2, batch_size: 10, classes: {fast: {speed: 20ms}}}
stop: {updates: 400, metrics: {Wrong: 60}}
evaluate:
  every: 20
  images: 100
  metrics: [macro_f1, top1, {top_k: {k: 3}}, {custom: {file: own.py, class: Wrong, scale: 100}}]
"""

OWN = """\
class Wrong:
    higher_is_better = False

    def __init__(self, *, scale):
        self.scale, self.wrong, self.images = scale, 0, 0

    def update(self, outputs, targets):
        self.wrong += int((outputs.argmax(axis=1) != targets).sum())
        self.images += len(targets)

    def value(self):
        return self.scale * self.wrong / self.images
"""

STUDY = """\
name: study
scenario: scenario.yaml
vary: {rate: [algorithm.learning_rate=0.1, algorithm.learning_rate=0.2]}
report:
  figures: {f: {show: MacroF1}}
  tables: {t: {measures: [final_macro_f1, best_top5, "time_to_Wrong(60)", updates]}}
expects:
  e: {measure: final_auroc, where: {rate: 0.1}, value: 0.9, tolerance: 0.1, source: mine}
"""


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("own.py").write_text(OWN)
    Path("scenario.yaml").write_text(SCENARIO)


def test_the_users_own_metric_stops_the_training_where_it_is_low_enough() -> None:
    assert main(["up", "scenario.yaml", "--name", "r"]) == 0
    run = Run("runs/r")  # others may have this name
    assert list(run.evaluations.columns)[5:9] == ["macro_f1", "top1", "top3", "Wrong"]
    during = run.evaluations[~run.evaluations["final"]]
    assert list(during["Wrong"]) == pytest.approx(list(100 * (1 - during["top1"])))
    *before, last = during["Wrong"]
    assert min(before) > 60 >= last
    assert run.state.reason == f"Wrong {last:.4f} reached 60"
    assert run.summary["metrics"]["Wrong"]["best"] == during["Wrong"].min()
    best = during.loc[during["macro_f1"].idxmax()]
    assert run.model("best").taken.version == best["version"]


def test_a_value_that_is_no_number(capsys: pytest.CaptureFixture[str]) -> None:
    late = OWN.replace("self.scale *", "(float('nan') if self.wrong < 80 else 100) *")
    Path("own.py").write_text(late)
    assert main(["up", "scenario.yaml", "--name", "r"]) == 11
    assert "own.py:11: Wrong: found the value nan, expected a finite" in capsys.readouterr().err


def test_a_study_names_a_metric_that_is_not_evaluated(capsys: pytest.CaptureFixture[str]) -> None:
    Path("study.yaml").write_text(STUDY)
    assert main(["validate", "study.yaml"]) == 2
    told = capsys.readouterr().err.splitlines()
    assert [line.partition(", expected")[0] for line in told] == [
        "study.yaml:5: report.figures.f.show: found MacroF1, which is not evaluated",
        "study.yaml:6: report.tables.t.measures.1: found top5, which is not evaluated",
        "study.yaml:8: expects.e.measure: found auroc, which is not evaluated",
    ]
    assert "a metric of evaluate.metrics: macro_f1, top1, top3, Wrong" in told[0]
