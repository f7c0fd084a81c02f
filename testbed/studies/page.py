"""The report of a study as a page: its results next to the paper's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from testbed.reports.charts import Chart, Series, most_points, thin
from testbed.reports.page import Page, PageTable, Section
from testbed.studies.document import Curves
from testbed.studies.figures import Curve, X, Y, curve_of, label_of
from testbed.studies.report import StudyReport, belongs
from testbed.studies.results import Results, spread
from testbed.studies.study import slug
from testbed.studies.tables import StudyTable, study_notes


def page_of_study(report: StudyReport) -> Page:
    """Return the page of a study, from its existing runs."""
    results = report.results
    study = results.study
    *shown, runs = report.tables
    sections = [
        *(Section(table.name, _plain(table.notes), [PageTable(*table.shown)]) for table in shown),
        *_paper(results),
        Section("Figures", charts=charts_of_study(report)),
        Section("Runs", tables=[_of_data(runs)]),
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
    figures = {
        name: wanted
        for name, wanted in results.study.document.report.figures.items()
        if belongs(name, results.study)
    }
    most = most_points(3 * len(figures) * len(results.study.cases))  # a curve and its band
    return tuple(
        chart for name, wanted in figures.items() for chart in _charts(name, wanted, results, most)
    )


def _charts(name: str, wanted: Curves, results: Results, most: int) -> Iterator[Chart]:
    found = [curve_of(case, wanted, results) for case in results.study.select(wanted.where)]
    curves = [curve for curve in found if curve is not None]
    panels: dict[tuple[str, ...], list[Curve]] = {}
    for curve in curves:
        levels = dict(curve.case.levels)
        panels.setdefault(tuple(levels[one] for one in wanted.panels), []).append(curve)
    averaged = f", mean of {wanted.mean_of}" if wanted.mean_of > 1 else ""
    for levels_of_panel, inside in panels.items():
        yield Chart(
            slug("-".join([name, *levels_of_panel])),
            ", ".join([name, *levels_of_panel]),
            X[wanted.against][2],
            f"{Y[wanted.show][2]}{averaged}",
            tuple(_series(curve, label_of(curve.case, wanted, curves), most) for curve in inside),
            wanted.log,
        )


def _series(curve: Curve, label: str, most: int) -> Series:
    """Return the mean over the seeds, with the band from minimum to maximum."""
    kept = thin(curve.mean, most)
    x, mean, least, greatest = (
        tuple(values[kept].tolist())
        for values in (curve.x, curve.mean, curve.least, curve.greatest)
    )
    if curve.seeds == 1:
        return Series(label, x, mean, len(curve.x))
    return Series(label, x, mean, len(curve.x), low=least, high=greatest)


def _paper(results: Results) -> Iterator[Section]:
    """Yield every number of the paper, next to ours for all its cases."""
    paper = results.study.document.paper
    if paper is None or not paper.numbers:
        return
    rows = []
    for one in paper.numbers:
        published = one.value if isinstance(one.value, str) else one.measure.show(one.value)
        for case in results.study.select(one.where):
            values = [results.value(run, one.measure) for run in results.valid(case)]
            ours = spread(values, one.measure.show) if values else "no valid run"
            rows.append([one.measure.title, case.name, published, ours, one.source])
    headings = ["measure", "case", "paper", "ours", "place in the paper"]
    if rows:
        yield Section(
            "Comparison with the paper", [f"Paper: {paper.source}."], [PageTable(headings, rows)]
        )


def _of_data(table: StudyTable) -> PageTable:
    headings, rows = table.data
    return PageTable(headings, [[str(cell) for cell in row] for row in rows])
