"""The studies of AdaComp's figures and tables, at 1/4000 of their length."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from testbed.studies import Study, is_study, load_study
from testbed.studies.document import Selection
from testbed.studies.found import find_runs
from testbed.studies.report import report_study

FOLDER = Path(__file__).parents[2] / "scenarios" / "adacomp"
SCALE = 0.004
CASES: dict[str, Selection] = {
    "encodings": {"encoding": "packed16", "method": "adacomp-0.01"},
    "fig1": {"method": "asgd"},
    "fig3": {"method": "asgd"},
    "fig4": {"ratio": "0.01", "images": "12k", "classes": "three"},
    "leap": {"law": "normal"},
    "low-c": {"ratio": "0.0001"},
    "selective": {"method": "selective"},
    "table2": {"workers": "60k-n200", "crashes": "none"},
    "table2-rate": {"rate": "0.03"},
    "waiting-law": {"law": "exponential", "method": "adacomp"},
}
"""Of each study, one case; a run that two share is made once."""

NIGHTLY = {"low-c", "selective", "table2-rate", "waiting-law"}
"""Each differs from a study that is always run in a value only."""

LIVE = {"live"}
"""In 200 containers: only read here."""


def reduced(name: str) -> Study:
    """A study, reduced to one run of this case."""
    study = load_study(FOLDER / f"{name}.yaml", scale=SCALE)
    (case,) = study.select(CASES[name])
    return replace(study, runs=tuple(run for run in study.runs if run.case == case)[:1])


def test_every_study_is_complete() -> None:
    files = {file.stem: file for file in FOLDER.glob("*.yaml") if is_study(file)}
    assert set(files) == set(CASES) | LIVE
    for name, file in files.items():
        images = {run.scenario.evaluate.images for run in load_study(file).runs}
        assert images == ({300} if name == "leap" else {10_000})


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, set[str]]:
    """A folder for the runs of all studies, and those it already has."""
    return tmp_path_factory.mktemp("runs"), set()


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        *sorted(set(CASES) - NIGHTLY),
        *(pytest.param(name, marks=pytest.mark.nightly) for name in sorted(NIGHTLY)),
    ],
)
def test_each_study_runs_and_is_reported(
    name: str, made: tuple[Path, set[str]], simulate: Any
) -> None:
    if "TESTBED_DATA" not in os.environ:
        pytest.skip("needs MNIST: set TESTBED_DATA to the folder that holds it")
    study, (runs, there) = reduced(name), made
    (run,) = study.runs
    if run.identity not in there:
        there.add(run.identity)
        assert simulate(run, runs)
    ((_, found),) = find_runs(study, runs).items()
    updates = run.scenario.stop.updates
    assert (found.condition, found.reason) == ("valid", f"{updates} updates applied")
    text = report_study(load_study(study.file, scale=SCALE), runs=runs).text
    assert "**SCALED**" in text
    assert "runs are missing" in text
