"""The results of a study's runs as tables, figures, verdicts and a page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from testbed.errors import RunNotFound
from testbed.reports.any_run import open_run
from testbed.reports.charts import Chart, most_points
from testbed.reports.figures import KINDS, STUDY, draw, write_picture
from testbed.reports.frames import Run
from testbed.reports.page import Page, PageTable, Section
from testbed.reports.run_measure import SIDE_BY_SIDE
from testbed.studies.comparisons import comparison_table
from testbed.studies.document import Curves
from testbed.studies.figures import charts_of_figure, curves_csv, curves_of, title_of
from testbed.studies.found import Results, find_runs, results_folder, spread
from testbed.studies.kept import FOLDER, keep
from testbed.studies.others import note_on_others, runs_made_otherwise
from testbed.studies.study import Study, slug
from testbed.studies.tables import (
    MISSED,
    StudyTable,
    result_table,
    run_table,
    study_notes,
    verdict_table,
)
from testbed.studies.verdicts import Judged, judge
from testbed.telemetry.files import write_atomically


@dataclass(frozen=True)
class StudyReport:
    """The report of a study."""

    results: Results  # the underlying results
    judged: tuple[Judged, ...]  # every expectation with its verdict
    tables: tuple[StudyTable, ...]  # all tables of the report
    folder: Path  # the folder where all files were written
    text: str  # the report as Markdown
    files: tuple[Path, ...]  # the files that were written, except the report itself

    def as_dict(self) -> dict[str, Any]:
        """Return the report as data for JSON."""
        study = self.results.study
        tables = {}
        for table in self.tables:
            headings, rows = table.data
            tables[table.name] = [dict(zip(headings, row, strict=True)) for row in rows]
        return {
            "study": study.name,
            "scale": study.scale,
            "folder": str(self.folder),
            "tables": tables,
        }


def report_study(study: Study, *, runs: Path, part: str | None = None) -> StudyReport:
    """Create the report of a study from its existing runs, and write it to the results folder.

    ``part``, a figure, table or level, restricts the report to it.

    Raises:
        ScenarioError: the results folder is another study's, or there is no such part.
        TestbedError: none of these runs has finished; earlier results are left as they are.
    """
    whole, study = study, study.only(part) if part else study
    found = find_runs(whole, runs)
    results = Results(study, whole, found, runs_made_otherwise(whole, runs, found))
    _check_any(results, runs)
    folder = results_folder(study, runs)
    if part:  # so that no file of the whole report is replaced
        folder /= f"only-{slug(part)}"
        folder.mkdir(exist_ok=True)
    judged = tuple(judge(results))
    shown = [
        (comparison_table if table.baseline else result_table)(name, table, results)
        for name, table in study.tables.items()
    ]
    if judged:
        shown.insert(0, verdict_table(judged, study))
    tables = (*shown, run_table(results))
    files = [_written(folder / f"{table.name}.csv", table.csv()) for table in tables]
    files += [_written(folder / f"{table.name}.tex", table.latex()) for table in shown]
    pictures: list[str] = []
    for name, wanted in study.figures.items():
        made, told = _figure(name, wanted, results, folder)
        files += made
        pictures.append(told)
    text = _text(study, [table.markdown() for table in shown], pictures)
    _written(folder / "report.md", text)
    return StudyReport(results, judged, tables, folder, text, tuple(files))


def _check_any(results: Results, runs: Path) -> None:
    """Check that any run of the study has finished: empty tables must not replace earlier results.

    Raises:
        RunNotFound: there is none.
    """
    study = results.study
    found = [results.found[run] for run in study.runs if run in results.found]
    if any(one.has_finished for one in found):
        return
    wanted = f"{study.part} of the study {study.name}" if study.part else f"the study {study.name}"
    others = note_on_others([run for run in study.runs if run in results.others])
    conditions = Counter(one.condition for one in found).items()
    notes = "".join(f"; {count} {condition}" for condition, count in conditions)
    raise RunNotFound(
        f"{runs}: none of the {len(study.runs)} runs of {wanted} has finished, so nothing is "
        f"written and earlier results stay as they are{notes}{others and '; '}{others}.",
        hint=f"Execute them: testbed sweep {study.file}, or choose their folder with --runs."
        + " To report the earlier runs, restore the files they were made with." * bool(others),
    )


def verdicts_of(study: Study, *, runs: Path) -> str:
    """Return the expectations of a study, its results and the verdicts, as Markdown."""
    results = Results(study, study, find_runs(study, runs))
    table = verdict_table(judge(results), study)
    return replace(table, name=study.name).markdown()


@dataclass(frozen=True)
class Kept:
    """What ``keep_runs`` has done.

    Attributes:
        files: of the kept runs.
        refused: names of ended runs that cannot be kept: only their folders have their numbers.
    """

    files: Sequence[Path]
    refused: Sequence[str]


def keep_runs(study: Study, *, runs: Path) -> Kept:
    """Keep the numbers of a study's ended runs next to its file.

    The measures that the study uses, and those for comparisons, are kept. Runs with the user's own
    files and workloads are refused: their files are part of a run's identity.

    Raises:
        TestbedError: an existing file is of another run, or damaged.
    """
    files, refused = list[Path](), list[str]()
    measures = [*study.measures, *SIDE_BY_SIDE, MISSED]
    for found in find_runs(study, runs).values():
        if found.is_kept or not found.has_finished:
            continue
        run = None if (found.path / "custom").is_dir() else open_run(found.path)
        if isinstance(run, Run):
            files.append(keep(run, measures, study.file.parent / FOLDER))
        else:
            refused.append(found.name)
    return Kept(files, refused)


def _text(study: Study, tables: list[str], pictures: list[str]) -> str:
    heading = f"# {study.name}\n"
    labels = [f"{note}\n" for note in study_notes(study)]
    return "\n".join([heading, *labels, *tables, *pictures])


def _figure(name: str, wanted: Curves, results: Results, folder: Path) -> tuple[list[Path], str]:
    """Draw a figure; return its files, and its Markdown for the report."""
    from matplotlib import rc_context

    curves = curves_of(wanted, results)
    files = [folder / f"{name}.{kind}" for kind in KINDS]
    table = folder / f"{name}-curves.csv"
    if not curves:
        for file in (*files, table):  # of an earlier report
            file.unlink(missing_ok=True)
        return [], f"### {name}\n\nNothing to draw: none of its runs has an evaluation.\n"
    with rc_context(STUDY):
        charts = charts_of_figure(name, wanted, curves, scaled=results.study.scale != 1)
        figure = draw(charts, title_of(name, curves, results))
        for file in files:
            write_picture(file, figure)
    files.append(_written(table, curves_csv(curves, results, wanted)))
    return files, f"### {name}\n\n![{name}]({name}.svg)\n"


def _written(path: Path, text: str) -> Path:
    write_atomically(path, text)
    return path


def page_of_study(report: StudyReport) -> Page:
    """Return the page of a study, from its existing runs."""
    results = report.results
    study = results.study
    *shown, runs = report.tables
    headings, rows = runs.data
    cells = [[str(cell) for cell in row] for row in rows]
    sections = [
        *(Section(table.name, _plain(table.notes), [PageTable(*table.shown)]) for table in shown),
        *_paper(results),
        Section("Figures", charts=charts_of_study(report)),
        Section("Runs", tables=[PageTable(headings, cells)]),
        Section("Study", text=study.file.read_text(encoding="utf-8")),
    ]
    conditions = [results.condition(run) for run in study.runs]
    subtitle = f"a study of {len(study.cases)} cases; of {len(conditions)} runs "
    subtitle += f"{conditions.count('valid')} exist and are valid"
    return Page(study.name, " ".join([f"{subtitle}.", *_plain(study_notes(study))]), (), sections)


def _plain(notes: Sequence[str]) -> list[str]:
    """Return notes without Markdown markup."""
    return [note.replace("**", "") for note in notes]


def charts_of_study(report: StudyReport) -> tuple[Chart, ...]:
    """Return the figures of a study; a figure with panels becomes one chart per panel."""
    results = report.results
    study, scaled = results.study, results.study.scale != 1
    most = most_points(3 * len(study.figures) * len(study.cases))  # a curve and its band
    return tuple(
        chart
        for name, wanted in study.figures.items()
        for chart in charts_of_figure(
            name, wanted, curves_of(wanted, results), scaled=scaled, most=most
        )
    )


def _paper(results: Results) -> Iterator[Section]:
    """Yield every number of the paper, next to ours for all its cases."""
    paper = results.study.document.paper
    if paper is None or not paper.numbers:
        return
    rows = []
    for one in paper.numbers:
        for case in results.study.select(one.where):
            values = results.values(case, one.measure)
            ours = spread(values, one.measure.show) if values else "no valid run"
            rows.append([one.measure.title, case.name, one.shown, ours, one.source])
    headings = ["measure", "case", "paper", "ours", "place in the paper"]
    if rows:
        yield Section(
            "Comparison with the paper", [f"Paper: {paper.source}."], [PageTable(headings, rows)]
        )
