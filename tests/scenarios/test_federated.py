"""The experiment of docs/federated.md in one file, shortened: from its sweep to its figures."""

from __future__ import annotations

from pathlib import Path

import pytest

import testbed

STUDY = Path(__file__).parents[2] / "scenarios/federated/partial.yaml"


@pytest.mark.slow
@pytest.mark.nightly
def test_an_experiment_in_one_file(tmp_path: Path) -> None:
    """Three methods and three seeds on one of the networks, for 9 emulated seconds each."""
    swept = testbed.sweep(STUDY, only="mixed", scale=0.05, runs=tmp_path)
    assert (len(swept.found), swept.invalid) == (9, [])
    for name in tmp_path.glob("partial-*-s*"):
        run = testbed.Run(name)
        last = run.evaluations.iloc[-1]
        assert 0 <= last["clients_worst"] <= last["clients_mean"] <= 1
        assert run.updates["worker"].nunique() >= 8  # a fifth of forty in each round
    report = swept.report()
    rows = {table.name: len(table.data[1]) for table in report.tables}
    assert rows == {"runs": 9, "results": 3, "tests": 2 * 3}  # two methods, by three measures
    written = {file.name for file in report.files}
    names = ("time", "fairness", "bytes")
    assert {"results.tex", "tests.tex", *(f"{name}.svg" for name in names)} <= written
