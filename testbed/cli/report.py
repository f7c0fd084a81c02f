"""``testbed report`` and ``compare``: the results of runs and studies, and their differences."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from testbed.cli.complete import complete_run
from testbed.cli.options import (
    FiniteRange,
    find,
    force_option,
    print_json,
    print_table,
    runs_option,
    scale_option,
)
from testbed.reports.exports import check_new

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from testbed.reports.any_run import AnyRun
    from testbed.reports.charts import Chart
    from testbed.reports.page import Page
    from testbed.reports.remake import Report
    from testbed.studies import Study


PATH = click.Path(path_type=Path)
DIFFERENT = 9


@dataclass(frozen=True)
class Wanted:
    """Output to create in addition to what is printed."""

    html: Path | None  # an HTML page
    figures: Path | None  # a folder of figures for printing
    force: bool  # whether to replace existing files

    def check(self) -> None:
        """Check that the output can be written, before any run is read.

        Raises:
            ScenarioError: something is in the way.
        """
        if self.html is not None:
            check_new("--html", self.html, force=self.force)
        if self.figures is not None:
            check_new("--figures", self.figures, force=self.force, folder=True)

    def write(self, page: Callable[[], Page], charts: Callable[[], Sequence[Chart]]) -> None:
        """Create the requested output, and print its paths."""
        if self.html is not None:
            from testbed.reports.page import render
            from testbed.telemetry.files import write_atomically, writing

            content = render(page())
            with writing(self.html):
                write_atomically(self.html, content)
            click.echo(f"wrote {self.html}", err=True)
        if self.figures is not None:
            from testbed.reports.figures import write_figures

            for path in write_figures(charts(), self.figures):
                click.echo(f"wrote {path}", err=True)


@click.command("report")
@click.argument(
    "what", nargs=-1, required=True, metavar="RUN... | STUDY", shell_complete=complete_run
)
@runs_option
@click.option("--only", metavar="NAME", help="Studies only: this figure, table or level.")
@scale_option
@click.option(
    "--keep",
    is_flag=True,
    help="Studies only: keep the numbers of ended runs in results/ next to the study.",
)
@click.option(
    "--verdicts", is_flag=True, help="Studies only: print the expected and the actual results."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead.")
@click.option("--html", type=PATH, metavar="FILE", help="Also write a self-contained HTML page.")
@click.option(
    "--figures", type=PATH, metavar="DIR", help="Also draw figures for a two-column paper."
)
@force_option
def report(
    what: tuple[str, ...],
    runs: Path,
    only: str | None,
    scale: float,
    keep: bool,
    verdicts: bool,
    as_json: bool,
    html: Path | None,
    figures: Path | None,
    force: bool,
) -> None:
    """Print the summary of RUN (a name or a path) and redraw its figure.

    If the controller of a run died, missing records are copied from the parameter server's. Several
    runs are compared in a table. For a STUDY (its file, or the name of a shipped one), all figures,
    tables and verdicts are created from the existing runs, printed, and written to the study's
    results folder.

    With --keep, the numbers of every ended run are also stored next to the study, in files small
    enough for a repository; `testbed sweep` does not repeat such a run, even without its folder.
    With --verdicts, for one or several STUDYs, only the expected results, the actual results and
    the verdicts are printed.

    --html FILE writes everything as one self-contained page: verdict, zoomable figures, links,
    faults, all numbers. --figures DIR draws the figures as PNG and SVG.
    """
    studies = [Path(one) for one in what if _is_study(one)]
    if verdicts or keep:
        if len(studies) < len(what) or only is not None or as_json or html or figures:
            raise click.UsageError("--keep and --verdicts need files of studies only.")
        if keep and scale != 1:
            raise click.UsageError("--keep cannot be combined with --scale.")
        _conclude_studies(studies, runs, scale=scale, keep=keep, verdicts=verdicts)
        return
    wanted = Wanted(html, figures, force)
    wanted.check()
    if len(what) == 1 and studies:
        _report_study(studies[0], runs, wanted, only=only, scale=scale, as_json=as_json)
        return
    if only is not None or scale != 1:
        raise click.UsageError("--only and --scale need the file of a study.")
    folders = [_find_run(name, runs) for name in what]
    if html is not None or figures is not None:
        _check_comparable(folders)
    if len(folders) == 1:
        _report_run(folders[0], as_json=as_json)
    else:
        _report_runs(folders, as_json=as_json)
    _write_of_runs(folders, wanted)


@click.command("compare")
@click.argument("first", shell_complete=complete_run)
@click.argument("second", shell_complete=complete_run)
@click.option(
    "--tolerance",
    type=FiniteRange(min=0),
    default=0.05,
    show_default=True,
    metavar="FRACTION",
    help="Largest accepted difference of a measure.",
)
@click.option(
    "--accuracy",
    type=FiniteRange(min=0, min_open=True, max=1),
    metavar="FRACTION",
    help="Also compare updates, time and bytes until this top-1 accuracy, such as 0.9.",
)
@runs_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def compare(
    first: str,
    second: str,
    tolerance: float,
    accuracy: float | None,
    runs: Path,
    as_json: bool,
) -> int:
    """Compare the runs FIRST and SECOND, such as a live and a simulated run of one scenario.

    Prints the differences between their scenarios first. The difference of two accuracies is
    absolute; the difference of other measures is relative to the larger value.

    Exits with 9 if a measure differs by more than the tolerance.
    """
    from testbed.reports.any_run import open_run
    from testbed.reports.compare import compare, scenario_differences
    from testbed.telemetry.entry import plain

    pair = [open_run(find(text, runs).path) for text in (first, second)]
    found = compare(*pair, accuracy=accuracy)
    if as_json:
        told = {
            "scenario": scenario_differences(pair),
            "measures": [asdict(one) for one in found],
        }
        print_json(plain(told))
    else:
        print_scenarios(pair)
        rows = []
        for one in found:
            mark = "  beyond the tolerance" if one.ratio > tolerance else ""
            rows.append(
                [one.measure, _shown(one.first), _shown(one.second), f"{one.ratio:.2%}{mark}"]
            )
        print_table(["measure", *(run.name for run in pair), "difference"], rows)
    return DIFFERENT if any(one.ratio > tolerance for one in found) else 0


def _is_study(what: str) -> bool:
    """Whether it is a study's file, or the name of a shipped one, unless that is a run's path."""
    from testbed.scenario.source import shipped_studies

    path = Path(what)
    return path.suffix in (".yaml", ".yml") or (what in shipped_studies() and not path.exists())


def _find_run(what: str, runs: Path) -> Path:
    """Return the folder of a run; if there is none, a shipped study may have been intended.

    Raises:
        RunNotFound: no such run exists; names the nearest run, or else the nearest study.
    """
    from testbed.errors import RunNotFound
    from testbed.scenario.source import shipped_studies
    from testbed.scenario.synonyms import nearest

    try:
        return find(what, runs).path
    except RunNotFound as error:
        if not error.hint.startswith("Did you mean"):
            error.hint = nearest(what, [*shipped_studies()]) or error.hint
        raise


def _write_of_runs(folders: Sequence[Path], wanted: Wanted) -> None:
    if wanted.html is None and wanted.figures is None:
        return
    from testbed.reports.any_run import open_run
    from testbed.reports.charts import charts_of
    from testbed.reports.frames import Run
    from testbed.reports.page import page_of
    from testbed.reports.workload import WorkloadRun
    from testbed.reports.workload_charts import charts_of_workload
    from testbed.reports.workload_page import page_of_workload

    first = open_run(folders[0])
    if isinstance(first, WorkloadRun):
        wanted.write(lambda: page_of_workload(first), lambda: charts_of_workload(first))
        return
    runs = [Run(folder) for folder in folders]
    wanted.write(lambda: page_of(runs), lambda: charts_of(runs))


def _check_comparable(folders: Sequence[Path]) -> None:
    """Refuse a page or figures of several runs if any of them is of a workload."""
    from testbed.scenario.load_workload import is_workload_file

    if len(folders) > 1 and any(is_workload_file(one / "scenario.yaml") for one in folders):
        raise click.UsageError(
            "--html and --figures compare runs of trainings only. Use one workload's run at a "
            "time, or the file of a study of workloads: testbed report study.yaml --html FILE"
        )


def _report_run(folder: Path, *, as_json: bool) -> None:
    from testbed.reports.remake import remake

    report = remake(folder, write=os.access(folder, os.W_OK))
    if as_json:
        print_json(report.summary)
    else:
        print_report(report, folder=folder)


def _report_runs(folders: Sequence[Path], *, as_json: bool) -> None:
    from testbed.reports.any_run import open_run
    from testbed.reports.compare import scenario_differences
    from testbed.reports.run_measure import compared_title, side_by_side
    from testbed.telemetry.entry import plain

    runs = [open_run(folder) for folder in folders]
    scenarios = [run.scenario for run in runs]
    measures = side_by_side(scenarios)
    values = {measure: [measure.of(run) for run in runs] for measure in measures}
    if as_json:
        found = {
            "runs": [run.summary for run in runs],
            "scenario": scenario_differences(runs),
            "measures": {str(measure): numbers for measure, numbers in values.items()},
        }
        print_json(plain(found))
        return
    print_scenarios(runs)
    valid = [run.summary["verdict"]["valid"] for run in runs]
    rows = [
        ["state", *(run.state.state for run in runs)],
        ["verdict", *("valid" if one else "NOT VALID" for one in valid)],
        *(
            [compared_title(measure, scenarios), *map(measure.show, numbers)]
            for measure, numbers in values.items()
        ),
    ]
    print_table(["", *(run.name for run in runs)], rows)


def _report_study(
    file: Path, runs: Path, wanted: Wanted, *, only: str | None, scale: float, as_json: bool
) -> None:
    from testbed.studies import load_study
    from testbed.studies.report import charts_of_study, page_of_study, report_study

    report = report_study(load_study(file, scale=scale), runs=runs, part=only)
    if as_json:
        print_json(report.as_dict())
    else:
        click.echo(report.text)
        for path in report.files:
            click.echo(f"wrote {path}")
        click.echo(f"folder: {report.folder}")
    wanted.write(lambda: page_of_study(report), lambda: charts_of_study(report))


def _conclude_studies(
    files: Sequence[Path], runs: Path, *, scale: float, keep: bool, verdicts: bool
) -> None:
    """Keep runs, or print verdicts, of several studies."""
    from testbed.studies import load_study
    from testbed.studies.report import verdicts_of

    for study in [load_study(file, scale=scale) for file in files]:
        if keep:
            _keep(study, runs)
        if verdicts:
            click.echo(verdicts_of(study, runs=runs))


def _keep(study: Study, runs: Path) -> None:
    """Keep the runs of a study, and say which ones only their folders have."""
    from testbed.reports.table import listed
    from testbed.studies.report import keep_runs

    kept = keep_runs(study, runs=runs)
    for path in kept.files:
        click.echo(f"kept {path}")
    if kept.refused:
        why = "runs with custom files, and workloads, exist in their folders only"
        click.echo(f"not kept: {listed(kept.refused)}: {why}.", err=True)
    elif not kept.files:
        click.echo(f"nothing to keep: {runs} has no ended run of {study.name}.", err=True)


def print_report(report: Report, *, folder: Path) -> None:
    """Print the summary table, and the paths of figure and folder."""
    from testbed.reports.console import Console
    from testbed.reports.table import summary_table

    console = Console()
    if "workload" in report.summary:
        from testbed.reports.workload_table import workload_tables

        for table in workload_tables(report.summary):
            console.print(table)
        click.echo(f"folder: {folder}")
        return
    console.print(summary_table(report.summary))
    if report.recovered:
        added = report.recovered
        click.echo(
            f"recovered: {added.updates} updates, {added.evaluations} evaluations and "
            f"{added.events} events that the controller did not record before it died"
        )
    click.echo(f"figure: {report.figure or 'none: the run has no evaluation'}")
    click.echo(f"folder: {folder}")


def print_scenarios(runs: Sequence[AnyRun]) -> None:
    """Print the differences between the scenarios of runs."""
    from testbed.reports.compare import scenario_differences
    from testbed.reports.console import WIDEST_VALUE, Console, table

    differences = scenario_differences(runs)
    if not differences:
        click.echo("The scenarios are the same.")
        return
    shown = table("the scenarios differ in")
    for run in runs:
        shown.add_column(run.name, max_width=WIDEST_VALUE)
    for path, values in differences.items():
        shown.add_row(path, *("-" if value is None else str(value) for value in values))
    Console().print(shown)


def _shown(value: float | None) -> str:
    if value is None:
        return ""
    return "never" if value == float("inf") else f"{value:,.5g}"
