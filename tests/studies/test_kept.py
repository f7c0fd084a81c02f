"""The summaries kept next to a study replace the folders of its runs."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from math import inf, isnan
from pathlib import Path
from typing import Any

import pytest

from testbed.cli import main
from testbed.errors import TestbedError
from testbed.reports.run_measure import Measure
from testbed.studies import Study, load_study
from testbed.studies.found import Results, find_runs
from testbed.studies.kept import KeptRun
from testbed.studies.report import keep_runs, report_study, verdicts_of

MORE = """\
report:
  tables: {results: {measures: [best_accuracy, "updates_to(0.9)", ingress]}}
  figures: {curves: {against: ingress}}
expects:
  better:
    measure: best_accuracy
    where: {rate: 0.1, workers: two}
    at_most: 0.8
    source: here
    basis: posthoc
"""


@pytest.fixture
def study(write_study: Callable[..., Path]) -> Study:
    return load_study(write_study(MORE))


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    return tmp_path / "runs"


@pytest.fixture
def files(study: Study, runs: Path, write_run: Callable[..., Any]) -> list[Path]:
    """The kept summaries of a finished and an interrupted run."""
    write_run(study.runs[0], runs, [0.5, 0.7])
    write_run(study.runs[1], runs, [0.5], state="interrupted")
    return [*keep_runs(study, runs=runs).files]


def test_a_kept_run_is_available_without_its_folder(
    study: Study, runs: Path, files: list[Path]
) -> None:
    assert [file.name for file in files] == ["rates-0-1-two-s1.run.json"]
    with_folder = verdicts_of(study, runs=runs)
    table = report_study(study, runs=runs).tables[1].csv()
    shutil.rmtree(runs)
    found = find_runs(study, runs)
    assert list(found) == [study.runs[0]]
    assert (found[study.runs[0]].name, found[study.runs[0]].condition) == (
        "rates-0-1-two-s1",
        "valid",
    )
    assert verdicts_of(study, runs=runs) == with_folder
    assert "not resolved | posthoc" in with_folder  # by one seed
    report = report_study(study, runs=runs)
    assert report.tables[1].csv() == table
    assert "curves.png" in {file.name for file in report.files}  # the curves were kept too


def test_measures_that_were_not_kept_come_from_evaluations_or_are_not_measured(
    study: Study, runs: Path, files: list[Path]
) -> None:
    """Accuracies of 0.5 and 0.7 after 20 and 40 updates, 2 and 4 s."""
    shutil.rmtree(runs)
    results = Results(study, study, find_runs(study, runs))
    run = study.runs[0]
    assert results.value(run, Measure.parse("best_accuracy")) == 0.7
    assert results.value(run, Measure.parse("updates_to(0.9)")) == inf
    assert results.value(run, Measure.parse("updates_to(0.6)")) == 40
    assert results.value(run, Measure.parse("time_to(0.5)")) == 2
    assert results.value(run, Measure.parse("best_accuracy(2)")) == pytest.approx(0.6)
    for asked in ("pickle9_to(0.6)", "egress_rate"):
        assert isnan(results.value(run, Measure.parse(asked)))


def test_a_folder_takes_precedence_over_kept_summaries(
    study: Study, runs: Path, files: list[Path]
) -> None:
    assert find_runs(study, runs)[study.runs[0]].path == runs / "rates-0-1-two-s1"
    kept = KeptRun.open(files[0])
    assert kept.scenario == study.runs[0].scenario
    assert kept.content["duration_seconds"] is not None
    assert keep_runs(study, runs=runs).files == files  # again, unchanged


def test_another_run_of_the_same_name_is_not_replaced(
    study: Study, runs: Path, files: list[Path], write_run: Callable[..., Any]
) -> None:
    before = files[0].read_text()
    shutil.rmtree(runs)
    write_run(study.runs[2], runs, [0.9], name="rates-0-1-two-s1")
    with pytest.raises(
        TestbedError, match=r"s1\.run\.json contains the kept numbers of another run"
    ):
        keep_runs(study, runs=runs)
    assert files[0].read_text() == before


@pytest.mark.parametrize("text", ["", "{}", '{"format": 2}', "[1]"])
def test_a_damaged_file_is_an_error(study: Study, runs: Path, files: list[Path], text: str) -> None:
    files[0].write_text(text)
    with pytest.raises(TestbedError, match=r"s1\.run\.json: not "):
        find_runs(study, runs)


def test_on_the_command_line(
    study: Study, runs: Path, files: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["report", str(study.file), "--runs", str(runs)]
    assert main([*words, "--keep", "--verdicts"]) == 0
    shown = capsys.readouterr().out
    assert f"kept {files[0]}" in shown
    assert "### rates" in shown
    assert "| better      | not resolved | posthoc |" in shown
    assert main([*words, "--keep", "--scale", "0.5"]) == 2
    assert "--keep cannot be combined with --scale" in capsys.readouterr().err
    assert main(["report", "tiny", "--verdicts"]) == 2
    assert "need files of studies" in capsys.readouterr().err


def test_runs_that_cannot_be_kept_are_named(
    study: Study,
    runs: Path,
    write_run: Callable[..., Any],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A user who believes them kept may delete their folders."""
    words = ["report", str(study.file), "--runs", str(runs), "--keep"]
    assert main(words) == 0
    assert f"nothing to keep: {runs} has no ended run of rates" in capsys.readouterr().err
    write_run(study.runs[0], runs, [0.5, 0.7])
    (runs / "rates-0-1-two-s1" / "custom").mkdir()
    assert main(words) == 0
    said = capsys.readouterr()
    assert "not kept: rates-0-1-two-s1: runs with custom files" in said.err
    assert not said.out
