"""Everything that is made of a study's runs: tables, figures, verdicts, printed and written."""

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
    """What there is to show of a study.

    Attributes:
        results: what it was made of.
        judged: every expectation with its verdict.
        tables: as asked for.
        folder: where everything was written.
        text: the report as Markdown.
        files: what was written, without the report itself.
    """

    results: Results
    judged: tuple[Judged, ...]
    tables: tuple[StudyTable, ...]
    folder: Path
    text: str
    files: tuple[Path, ...]

    def as_dict(self) -> dict[str, Any]:
        """As JSON has it."""
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
    """Make the report of a study from what is there of its runs, and write it down.

    Args:
        study: the whole study.
        runs: the folder of runs.
        part: a figure, a table or a level, for what concerns that alone.

    Raises:
        ScenarioError: the results' folder is another study's, or there is no such part.
    """
    whole, study = study, study.only(part) if part else study
    results = Results(study, whole, find_runs(whole, runs))
    folder = results_folder(study, runs)
    if part:  # so that nothing of the whole report is replaced
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
    """What was expected of a study, what came out, and whether that is the same, as Markdown."""
    results = Results(study, study, find_runs(study, runs))
    table = verdict_table(judge(results), study)
    return replace(table, name=study.name).markdown()


def keep_runs(study: Study, *, runs: Path) -> list[Path]:
    """Keep the numbers of a study's runs that have ended, beside its file; returns the files.

    Whatever the study asks of a run is kept, and what runs are compared by; not of a run with files
    of the user's own, as these belong to what it is known by.

    Raises:
        TestbedError: a file is there already that is another run's, or damaged.
    """
    kept = []
    for found in find_runs(study, runs).values():
        ended = found.condition in ("valid", "invalid") and not found.is_kept
        if ended and not (found.path / "custom").is_dir():
            measures = [*study.measures, *SIDE_BY_SIDE, MISSED]
            kept.append(keep(Run(found.path), measures, study.file.parent / FOLDER))
    return kept


def belongs(name: str, study: Study) -> bool:
    """Whether a figure or table is wanted, where only a part of the study is."""
    report = study.document.report
    whole = study.part not in (*report.figures, *report.tables)
    return whole or name == study.part


def _text(study: Study, tables: list[str], pictures: list[str]) -> str:
    heading = f"# {study.name}\n"
    labels = [f"{note}\n" for note in study_notes(study)]
    return "\n".join([heading, *labels, *tables, *pictures])


def _figure(name: str, results: Results, folder: Path) -> tuple[list[Path], str]:
    """Draw a figure; returns its files, and how the report shows it."""
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
    """Write a figure; the same one gives the same bytes."""
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
