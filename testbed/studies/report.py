"""The results of a study's runs: tables, figures and verdicts, to print and to write."""

from __future__ import annotations

import io
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed.reports.figures import DPI
from testbed.reports.frames import Run
from testbed.reports.run_measure import SIDE_BY_SIDE
from testbed.studies.figures import curve_of, curves_csv, draw
from testbed.studies.found import find_runs, results_folder
from testbed.studies.kept import FOLDER, keep
from testbed.studies.results import Results
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

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class StudyReport:
    """The report of a study.

    Attributes:
        results: the underlying results.
        judged: every expectation with its verdict.
        tables: all tables of the report.
        folder: the folder where all files were written.
        text: the report as Markdown.
        files: the files that were written, except the report itself.
    """

    results: Results
    judged: tuple[Judged, ...]
    tables: tuple[StudyTable, ...]
    folder: Path
    text: str
    files: tuple[Path, ...]

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

    Args:
        study: the whole study.
        runs: the folder of runs.
        part: a figure, table or level, to restrict the report to.

    Raises:
        ScenarioError: the results folder is another study's, or there is no such part.
    """
    whole, study = study, study.only(part) if part else study
    results = Results(study, whole, find_runs(whole, runs))
    folder = results_folder(study, runs)
    if part:  # so that no file of the whole report is replaced
        folder /= f"only-{slug(part)}"
        folder.mkdir(exist_ok=True)
    judged = tuple(judge(results))
    wanted = study.document.report
    shown = [
        result_table(name, table, results)
        for name, table in wanted.tables.items()
        if belongs(name, study)
    ]
    if judged:
        shown.insert(0, verdict_table(judged, study))
    tables = (*shown, run_table(results))
    files = [_written(folder / f"{table.name}.csv", table.csv()) for table in tables]
    pictures: list[str] = []
    for name in wanted.figures:
        if belongs(name, study):
            made, told = _figure(name, results, folder)
            files += made
            pictures.append(told)
    text = _text(study, [table.markdown() for table in shown], pictures)
    _written(folder / "report.md", text)
    return StudyReport(results, judged, tables, folder, text, tuple(files))


def verdicts_of(study: Study, *, runs: Path) -> str:
    """Return the expectations of a study, its results and the verdicts, as Markdown."""
    results = Results(study, study, find_runs(study, runs))
    table = verdict_table(judge(results), study)
    return replace(table, name=study.name).markdown()


def keep_runs(study: Study, *, runs: Path) -> list[Path]:
    """Keep the numbers of a study's ended runs next to its file; return the files.

    The measures that the study uses, and those for comparisons, are kept. Runs with the user's own
    files are skipped, as these files are part of a run's identity.

    Raises:
        TestbedError: an existing file is of another run, or damaged.
    """
    kept = []
    for found in find_runs(study, runs).values():
        ended = found.condition in ("valid", "invalid") and not found.is_kept
        if ended and not (found.path / "custom").is_dir():
            measures = [*study.measures, *SIDE_BY_SIDE, MISSED]
            kept.append(keep(Run(found.path), measures, study.file.parent / FOLDER))
    return kept


def belongs(name: str, study: Study) -> bool:
    """Whether a figure or table belongs to the selected part of the study."""
    report = study.document.report
    whole = study.part not in (*report.figures, *report.tables)
    return whole or name == study.part


def _text(study: Study, tables: list[str], pictures: list[str]) -> str:
    heading = f"# {study.name}\n"
    labels = [f"{note}\n" for note in study_notes(study)]
    return "\n".join([heading, *labels, *tables, *pictures])


def _figure(name: str, results: Results, folder: Path) -> tuple[list[Path], str]:
    """Draw a figure; return its files, and its Markdown for the report."""
    wanted = results.study.document.report.figures[name]
    found = [curve_of(case, wanted, results) for case in results.study.select(wanted.where)]
    curves = [curve for curve in found if curve is not None]
    if not curves:
        return [], f"### {name}\n\nNothing to draw: none of its runs has an evaluation.\n"
    figure = draw(name, wanted, curves, results)
    files = [_saved(figure, folder / f"{name}.{kind}", kind) for kind in ("png", "svg")]
    files.append(_written(folder / f"{name}-curves.csv", curves_csv(curves, results, wanted)))
    return files, f"### {name}\n\n![{name}]({name}.svg)\n"


def _saved(figure: Figure, path: Path, kind: str) -> Path:
    """Write a figure; the same figure gives the same bytes."""
    from matplotlib import rc_context

    image = io.BytesIO()
    with rc_context({"svg.hashsalt": path.stem}):
        figure.savefig(
            image, format=kind, dpi=DPI, metadata={"Date": None} if kind == "svg" else None
        )
    write_atomically(path, image.getvalue())
    return path


def _written(path: Path, text: str) -> Path:
    write_atomically(path, text)
    return path
