"""The experiment of docs/federated.md in one file, shortened: from its sweep to its figures."""

from __future__ import annotations

from pathlib import Path

import pytest

import testbed

STUDY = Path(__file__).parents[2] / "scenarios/federated/partial.yaml"


@pytest.mark.slow
def test_an_experiment_in_one_file(tmp_path: Path) -> None:
    """Three methods, two networks and three seeds, for 18 emulated seconds each."""
    swept = testbed.sweep(STUDY, scale=0.1, runs=tmp_path)
    assert (len(swept.found), swept.invalid) == (18, [])
    for name in tmp_path.glob("partial-*-s*"):
        run = testbed.Run(name)
        last = run.evaluations.iloc[-1]
        assert 0 <= last["clients_worst"] <= last["clients_mean"] <= 1
        assert run.updates["worker"].nunique() > 8  # a fifth of forty, and others in later rounds
    swept.report()
    table = (tmp_path / "partial/results.csv").read_text().splitlines()
    assert len(table) == 1 + 6  # a heading, and three methods on two networks
    written = {file.name for file in (tmp_path / "partial").iterdir()}
    names = ("time", "fairness", "bytes")
    assert {"results.tex", "tests.tex", *(f"{name}.svg" for name in names)} <= written
