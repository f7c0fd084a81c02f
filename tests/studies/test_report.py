"""The report of a study: tables, curves and files, for runs with numbers chosen by hand."""

from __future__ import annotations

import csv
import fcntl
import json
from collections.abc import Callable
from math import atan, pi, sqrt
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from testbed.cli import main
from testbed.errors import ScenarioError, TestbedError
from testbed.reports.figures import draw
from testbed.studies import Study, load_study
from testbed.studies.document import Curves
from testbed.studies.figures import charts_of_figure, curve_of, curves_of
from testbed.studies.found import Results, find_runs
from testbed.studies.report import page_of_study, report_study
from testbed.telemetry.folder import RunFolder

MORE = """\
report:
  tables: {results: {measures: [best_accuracy, updates_to(0.6)]}}
  figures: {curves: {against: ingress, panels: [workers]}}
paper:
  source: someone, 2026
  numbers: [{measure: best_accuracy, where: {rate: 0.1}, value: 0.9, source: table 1}]
expects:
  faster:
    measure: best_accuracy
    where: {workers: two}
    order: [{rate: 0.1}, {rate: 0.01}]
    source: here
"""


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    return tmp_path / "runs"


@pytest.fixture
def study(write_study: Callable[..., Path], write_run: Callable[..., Any], runs: Path) -> Study:
    """A study of four cases and two seeds; the last case was not run, and one run is not valid."""
    study = load_study(write_study(MORE))
    for index, run in enumerate(study.runs[:6]):
        write_run(run, runs, [0.5, 0.6 + index / 100], updates=0 if index == 3 else 4)
    return study


def test_tables_have_mean_minimum_maximum_and_the_papers_value(study: Study, runs: Path) -> None:
    text = report_study(study, runs=runs).text
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines()]
    assert ["0.1", "two", "2", "60.50% (60.00% to 61.00%)", "90.00% (table 1)", "40"] in cells
    assert ["0.1", "four", "1 of 2†", "62.00%", "90.00% (table 1)", "40"] in cells
    assert ["0.01", "four", "0 of 2", "not run", "", "not run"] in cells
    assert "† 1 of 8 runs are not valid; they are kept, but excluded from all numbers here" in text
    assert "- rates-0-1-four-s2: No update was applied" in text
    assert "2 of 8 runs are missing." in text
    assert "Paper: someone, 2026." in text
    assert "SCALED" not in text


def test_all_files_are_written(study: Study, runs: Path) -> None:
    report = report_study(study, runs=runs)
    assert {path.name for path in report.files} == {
        *("expectations.csv", "results.csv", "runs.csv", "curves.png", "curves.svg"),
        *("curves-curves.csv", "expectations.tex", "results.tex"),
    }
    assert all(path.parent == runs / "rates" and path.stat().st_size for path in report.files)
    assert (runs / "rates/report.md").read_text() == report.text
    before = {path: path.read_bytes() for path in report.files}
    report_study(study, runs=runs)
    assert {path: path.read_bytes() for path in report.files} == before
    with (runs / "rates/results.csv").open() as file:
        first = next(csv.DictReader(file))
    assert first["best_accuracy least"] == "0.6"
    assert first["best_accuracy paper"] == "0.9"
    with (runs / "rates/runs.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["condition"] for row in rows].count("invalid") == 1
    assert rows[-1]["condition"] == "not run"
    (judged,) = report.judged
    # 0.60 and 0.61 against 0.64 and 0.65, of 100 images, too few to distinguish .605 from .645
    assert judged.verdict == "not resolved"


def test_curves_have_a_point_where_any_seed_was_evaluated(study: Study, runs: Path) -> None:
    results = Results(study, study, find_runs(study, runs))
    curve = curve_of(study.cases[0], Curves(against="ingress"), results)
    assert curve is not None
    assert curve.seeds == 2
    np.testing.assert_allclose(curve.x, [1, 2])  # MB
    np.testing.assert_allclose(curve.mean, [50, 60.5])
    np.testing.assert_allclose(curve.least, [50, 60])
    np.testing.assert_allclose(curve.greatest, [50, 61])
    part = curve_of(study.cases[0], Curves(against="ingress", between=(1.5, 3)), results)
    assert part is not None
    assert part.x.tolist() == [2]
    assert curve_of(study.cases[3], Curves(), results) is None


def test_curves_are_of_scheduled_evaluations(
    write_study: Callable[..., Path], write_run: Callable[..., Any], runs: Path
) -> None:
    """Evaluated every 20 updates: the first of every 40 are at 20, 40 and 80."""
    vary = "vary: {every: [evaluate.every=40, evaluate.every=20]}"
    study = load_study(write_study(text=f"name: rarely\nscenario: base.yaml\n{vary}\n"))
    write_run(study.runs[0], runs, [0.5, 0.7, 0.6, 0.8])
    results = Results(study, study, find_runs(study, runs))
    curve = curve_of(study.cases[0], Curves(against="ingress"), results)
    assert curve is not None
    assert (curve.x.tolist(), curve.mean.tolist()) == ([1, 2, 4], [50, 70, 80])


def test_a_baseline_is_tested_against_the_other_cases(
    write_study: Callable[..., Path], write_run: Callable[..., Any], runs: Path
) -> None:
    """With 0.1 60 and 66 %, with 0.01 58 and 62 %: differences of 2 and 4 points, t = 3."""
    more = """\
report:
  interval: t
  tables:
    results: {measures: [best_accuracy, updates_to(0.64)], where: {workers: two}}
    tests:
      {measures: [best_accuracy, updates_to(0.64)], where: {workers: two}, baseline: {rate: 0.01}}
"""
    study = load_study(write_study(more))
    best = {"0.1": [0.60, 0.66], "0.01": [0.58, 0.62]}
    for run in study.runs:
        levels = dict(run.case.levels)
        if levels["workers"] == "two":
            write_run(run, runs, [0.5, best[levels["rate"]][run.seed - 1]])
    report = report_study(study, runs=runs)
    cells = [[cell.strip() for cell in one.split("|")[1:-1]] for one in report.text.splitlines()]
    assert [
        *("0.1", "two", "best accuracy", "2", "60.00% (34.59% to 85.41%)"),
        *("63.00% (24.88% to 101.12%)", "3.00% (-9.71% to 15.71%)"),
        *("paired t", "0.205", "0.410", "0.500"),
    ] in cells
    # by update 40 with one of four seeds: expected 1/2 of it, with a variance of 1/4
    assert [
        *("0.1", "two", "updates to 64 %", "2", "never", "median 40 (40 to never), 1 of 2 reached"),
        *("", "log-rank", "0.317", "0.410", ""),
    ] in cells
    assert "Mean over the seeds, with its 95 % confidence interval (Student's t)." in report.text
    tests = (report.folder / "tests.tex").read_text()
    assert r"0.1 & two & best accuracy & 2 & 60.00\% (34.59\% to 85.41\%)" in tests
    with (report.folder / "tests.csv").open() as file:
        assert float(next(csv.DictReader(file))["p"]) == pytest.approx(1 - 2 * atan(3) / pi)
    with (report.folder / "results.csv").open() as file:
        first = next(csv.DictReader(file))
    assert float(first["best_accuracy deviation"]) == pytest.approx(0.03 * sqrt(2))
    assert first["updates_to(0.64) reached"] == "1"


def without_the_second_evaluation(run: RunFolder) -> None:
    """Let a run of the accuracies 0.2, 0.9 and 0.6 have missed its second evaluation."""
    for file, text in ((run.evaluations, ",0.9,"), (run.events, '"top1": 0.9')):
        lines = file.read_text().splitlines(keepends=True)
        kept = [line for line in lines if text not in line]
        assert len(kept) == len(lines) - 1
        file.write_text("".join(kept))


def test_a_table_reports_missed_evaluations(
    write_study: Callable[..., Path], write_run: Callable[..., Any], runs: Path
) -> None:
    """The evaluation at 40 is missing from those at 20, 40 and 60 of 80 updates."""
    study = load_study(write_study())
    first = write_run(study.runs[0], runs, [0.2, 0.9, 0.6])
    without_the_second_evaluation(first)
    said = (
        "- rates-0-1-two-s1 missed 1 evaluations: its means of consecutive evaluations cover "
        "more time"
    )
    assert said in report_study(study, runs=runs).text


def test_seeds_evaluated_at_different_times(
    write_study: Callable[..., Path], write_run: Callable[..., Any], runs: Path
) -> None:
    """From 0.2 at 20 to 0.6 at 60 updates in a line through 0.4 at 40, where the other has 0.5."""
    study = load_study(write_study())
    first = write_run(study.runs[0], runs, [0.2, 0.9, 0.6])
    without_the_second_evaluation(first)
    write_run(study.runs[1], runs, [0.4, 0.5, 0.6])
    curve = curve_of(study.cases[0], Curves(), Results(study, study, find_runs(study, runs)))
    assert curve is not None
    np.testing.assert_allclose(curve.x, [20, 40, 60])
    np.testing.assert_allclose(curve.mean, [30, 45, 60])
    np.testing.assert_allclose(curve.least, [20, 40, 60])


def test_a_single_part(study: Study, runs: Path) -> None:
    report = report_study(study, runs=runs, part="curves")
    assert [path.suffix for path in report.files if path.stem.startswith("curves")] == [
        *(".png", ".svg", ".csv")
    ]
    assert "### results" not in report.text
    assert report.folder == runs / "rates/only-curves"
    assert (report.folder / "report.md").exists()
    assert not (runs / "rates/report.md").exists()
    assert [one.name for one in report_study(study, runs=runs, part="two").judged] == ["faster"]
    assert report_study(study, runs=runs, part="four").judged == ()


def test_every_table_of_a_scaled_study_says_so(
    write_study: Callable[..., Path], write_run: Callable[..., Any], runs: Path
) -> None:
    study = load_study(write_study(MORE), scale=0.5)
    write_run(study.runs[0], runs, [0.5])
    report = report_study(study, runs=runs)
    assert report.folder == runs / "rates/scale-0.5"
    said = "**SCALED**: the length of every run and its evaluation interval are multiplied by 0.5"
    for table in report.tables[:-1]:
        assert said in table.markdown()
    for name in ("expectations", "results", "runs"):
        with (report.folder / f"{name}.csv").open() as file:
            assert next(csv.DictReader(file))["scale"] == "0.5"


def test_the_results_of_another_study_are_not_replaced(study: Study, runs: Path) -> None:
    report_study(study, runs=runs)
    before = (runs / "rates/report.md").read_text()
    other = study.file.parent / "elsewhere" / "study.yaml"
    other.parent.mkdir()
    other.write_text(study.file.read_text().replace("base.yaml", "../base.yaml"))
    with pytest.raises(ScenarioError, match=r"with the results of another study, .*study\.yaml"):
        report_study(load_study(other), runs=runs)
    assert (runs / "rates/report.md").read_text() == before


def test_a_foreign_folder_is_not_written_to(study: Study, runs: Path) -> None:
    (runs / "rates").mkdir()
    (runs / "rates/thesis.tex").touch()
    with pytest.raises(ScenarioError, match="a folder with other content"):
        report_study(study, runs=runs)
    assert [path.name for path in (runs / "rates").iterdir()] == ["thesis.tex"]


def test_on_the_command_line(
    study: Study, runs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["report", str(study.file), "--runs", str(runs)]) == 0
    shown = capsys.readouterr().out
    assert "| faster      | not resolved |" in shown
    assert f"wrote {runs / 'rates/curves.svg'}" in shown
    assert main(["report", str(study.file), "--runs", str(runs), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["tables"]["results"][0]["best_accuracy mean"] == pytest.approx(0.605)
    assert main(["report", "tiny", "--scale", "0.5"]) == 2
    assert "need the file of a study" in capsys.readouterr().err
    assert main(["validate", str(study.file)]) == 0
    assert "rates, a study of 4 cases, 8 runs" in capsys.readouterr().out


def test_earlier_results_stay_if_no_run_exists_any_more(
    study: Study, runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The scenario was edited since: all six runs are runs of another one."""
    report = report_study(study, runs=runs)
    before = {path: path.read_bytes() for path in (runs / "rates").iterdir()}
    base = study.file.parent / "base.yaml"
    base.write_text(base.read_text().replace("every: 20", "every: 30"))
    assert main(["report", str(study.file), "--runs", str(runs)]) == 7
    said = capsys.readouterr()
    assert not said.out
    assert "none of the 8 runs of the study rates" in said.err
    assert "6 runs of these names were made with other files or another scenario" in said.err
    assert {path: path.read_bytes() for path in (runs / "rates").iterdir()} == before
    with pytest.raises(TestbedError, match="none of the 4 runs of two of the study rates"):
        report_study(load_study(study.file), runs=runs, part="two")
    assert report.files[0].exists()


def test_earlier_results_stay_while_no_run_has_finished(
    study: Study, runs: Path, write_run: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """The scenario was edited, and the sweep of the new one interrupted in its second run."""
    report_study(study, runs=runs)
    before = {path: path.read_bytes() for path in (runs / "rates").iterdir()}
    base = study.file.parent / "base.yaml"
    base.write_text(base.read_text().replace("updates: 60", "updates: 80"))
    first, second, *_ = load_study(study.file).runs
    write_run(first, runs, [0.5], state="failed", name="first")
    lock = write_run(second, runs, [0.5], state="training", name="second").lock
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert main(["report", str(study.file), "--runs", str(runs)]) == 7
    assert "none of the 8 runs of the study rates has finished" in (said := capsys.readouterr().err)
    assert "earlier results stay as they are; 1 interrupted; 1 running; 4 runs" in said
    assert {path: path.read_bytes() for path in (runs / "rates").iterdir()} == before


def test_a_report_without_a_folder_of_runs_creates_none(
    write_study: Callable[..., Path], runs: Path
) -> None:
    with pytest.raises(TestbedError, match="none of the 8 runs"):
        report_study(load_study(write_study(MORE)), runs=runs)
    assert not runs.exists()


def test_missing_runs_of_another_scenario_are_counted_and_stale_figures_removed(
    study: Study, runs: Path, write_run: Callable[..., Any]
) -> None:
    report_study(study, runs=runs)
    base = study.file.parent / "base.yaml"
    base.write_text(base.read_text().replace("every: 20", "every: 30"))
    edited = load_study(study.file)
    write_run(edited.runs[6], runs, [], final=False)
    report = report_study(edited, runs=runs)
    missing = "7 of 8 runs are missing; 6 runs of these names were made with other files"
    assert missing in report.text
    assert "Nothing to draw" in report.text
    assert {path.name for path in (runs / "rates").iterdir()} == {
        *("expectations.csv", "results.csv", "runs.csv", "expectations.tex", "results.tex"),
        *("report.md", "study.json"),
    }


def test_axes_are_logarithmic_if_configured(study: Study, runs: Path) -> None:
    results = Results(study, study, find_runs(study, runs))
    for wanted, scale in ((Curves(against="ingress", log=("x", "y")), "log"), (Curves(), "linear")):
        curves = curves_of(wanted, results)
        (axes,) = draw(charts_of_figure("curves", wanted, curves, scaled=False)).axes
        assert (axes.get_xscale(), axes.get_yscale()) == (scale, scale)


def test_a_logarithmic_axis_starts_above_0(write_study: Callable[..., Path]) -> None:
    more = "report: {figures: {loss: {show: loss, range: [0, 2], log: [y]}}}"
    with pytest.raises(
        ScenarioError, match="logarithmic y axis from 0 on, expected limits above 0"
    ):
        load_study(write_study(more))


def test_a_page_has_no_markdown(
    write_study: Callable[..., Path], write_run: Callable[..., Any], runs: Path
) -> None:
    study = load_study(write_study(MORE), scale=0.5)
    write_run(study.runs[0], runs, [0.5, 0.6])
    report = report_study(study, runs=runs)
    page = page_of_study(report)
    notes = [note for section in page.sections for note in section.notes]
    assert any(
        note.startswith(
            "SCALED: the length of every run and its evaluation interval are multiplied by 0.5"
        )
        for note in notes
    )
    assert "**" not in " ".join([page.subtitle, *notes])
    assert "**SCALED**" in report.text


def test_a_page_next_to_the_paper(
    study: Study, runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Six of eight runs exist; the paper has 0.9 where ours are 0.60 to 0.61, and 0.62."""
    page = page_of_study(report_study(study, runs=runs))
    sections = {section.title: section for section in page.sections}
    assert "of 8 runs 5 exist and are valid" in page.subtitle
    (table,) = sections["Comparison with the paper"].tables
    assert list(table.rows) == [
        ["best accuracy", "rate 0.1, two", "90.00%", "60.50% (60.00% to 61.00%)", "table 1"],
        ["best accuracy", "rate 0.1, four", "90.00%", "62.00%", "table 1"],
    ]
    two, four = sections["Figures"].charts
    assert (two.name, four.name) == ("curves-two", "curves-four")
    first = two.series[0]
    assert (first.x, first.y) == ((1.0, 2.0), (50.0, 60.5))
    assert (first.low, first.high) == ((50.0, 60.0), (50.0, 61.0))
    assert four.series[0].low == ()  # one seed has no band
    out, figures = tmp_path / "out.html", tmp_path / "figures"
    words = ["report", str(study.file), "--runs", str(runs)]
    assert main([*words, "--html", str(out), "--figures", str(figures)]) == 0
    assert "Comparison with the paper" in out.read_text()
    assert (figures / "curves-four.svg").stat().st_size
    capsys.readouterr()
