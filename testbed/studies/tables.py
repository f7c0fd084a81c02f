"""Tables of a study: Markdown for people, CSV for programs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import isfinite, isnan

from testbed.algorithms.frame.stop import DIVERGED
from testbed.reports.run_measure import Measure
from testbed.reports.table import csv_text, latex, markdown
from testbed.studies.document import TableOf
from testbed.studies.found import Results
from testbed.studies.others import note_on_others
from testbed.studies.statistics import Estimate
from testbed.studies.study import Case, Study
from testbed.studies.verdicts import Judged

INVALID_MARK = "†"
PARTS = ("mean", "deviation", "least", "greatest", "low", "high", "reached", "paper")
"""Columns of a measure in CSV. The mean is a median if not every seed reached the value."""

MISSED = Measure("missed_evaluations")


@dataclass(frozen=True)
class StudyTable:
    """One table."""

    name: str  # name of the table and of its file
    notes: tuple[str, ...]  # sentences to print with it
    shown: tuple[Sequence[str], Sequence[Sequence[str]]]  # headings and rows for people
    data: tuple[Sequence[str], Sequence[Sequence[object]]]  # headings and rows for programs

    def markdown(self) -> str:
        """Return heading, table and notes as Markdown."""
        notes = "".join(f"{note}\n" for note in self.notes)
        return f"### {self.name}\n\n{markdown(*self.shown)}" + (f"\n{notes}" if notes else "")

    def latex(self) -> str:
        """Return the table as LaTeX, the notes as comments."""
        notes = "".join(f"% {note}\n" for note in (self.name, *self.notes))
        return f"{notes}% \\usepackage{{booktabs}}\n{latex(*self.shown)}"

    def csv(self) -> str:
        """Return the table as CSV."""
        return csv_text(*self.data)


def study_notes(study: Study) -> tuple[str, ...]:
    """Return the notes for every table of a study that is scaled, or uses substitutes."""
    told = [one for run in study.runs for one in run.substitutes]
    labels = [f"**SUBSTITUTE**: {one}." for one in dict.fromkeys(told)]
    if study.scale != 1:
        labels.append(
            "**SCALED**: the length of every run and its evaluation interval are multiplied by "
            f"{study.scale:g}."
        )
    return tuple(labels)


def result_table(name: str, wanted: TableOf, results: Results) -> StudyTable:
    """Return a row per case: its levels, its measures over the seeds, and the paper's numbers."""
    study, paper = results.study, results.study.document.paper
    cases, numbers = study.select(wanted.where), paper.numbers if paper else ()
    published = {one.measure for one in numbers if any(case.fits(one.where) for case in cases)}
    headings = [*study.factors, "seeds"]
    data_headings = [*study.factors, "seeds", "invalid", "scale"]
    rows, data = [], []
    for measure in wanted.measures:
        headings += [measure.title, f"{measure.title}, paper"][: 1 + (measure in published)]
        data_headings += [f"{measure} {part}" for part in PARTS]
    for case in cases:
        conditions = [results.condition(run) for run in results.by_case[case]]
        valid, invalid = conditions.count("valid"), conditions.count("invalid")
        seeds = f"{valid}" if valid == len(conditions) else f"{valid} of {len(conditions)}"
        levels = [level for _, level in case.levels]
        row = [*levels, f"{seeds}{INVALID_MARK if invalid else ''}"]
        plain: list[object] = [*levels, valid, invalid, study.scale]
        for measure in wanted.measures:
            values = results.values(case, measure)
            own = [one for one in numbers if one.measure == measure and case.fits(one.where)]
            missing = "not valid" if invalid else "not run"
            found = results.estimate(case, measure) if values else None
            row.append(found.show(measure.show) if found else missing)
            if measure in published:
                row.append("; ".join(f"{one.shown} ({one.source})" for one in own))
            plain += [*_numbers(values, found), "; ".join(str(one.value) for one in own)]
        rows.append(row)
        data.append(plain)
    notes = [*study_notes(study), *_notes(cases, results)]
    if published.intersection(wanted.measures) and paper is not None:
        notes.append(f"Paper: {paper.source}.")
    return StudyTable(name, tuple(notes), (headings, rows), (data_headings, data))


def _numbers(values: Sequence[float], found: Estimate | None) -> Iterator[object]:
    """Yield mean or median, deviation, extremes and interval of a measure, for CSV."""
    if found is None:
        yield from [""] * (len(PARTS) - 1)
        return
    extremes = min(values), max(values)
    yield from map(plain_number, (found.center, found.deviation, *extremes, found.low, found.high))
    yield found.reached


def plain_number(value: float) -> object:
    """Return a number for CSV: empty if not measured, ``inf`` for never."""
    if isnan(value):
        return ""
    return int(value) if isfinite(value) and value == int(value) else value


def _notes(cases: Sequence[Case], results: Results) -> Iterator[str]:
    interval = results.study.document.report.shown
    if interval.kind != "range":
        yield f"Mean over the seeds, with its {interval.title}."
    runs = [run for case in cases for run in results.by_case[case]]
    invalid = [run for run in runs if results.condition(run) == "invalid"]
    if invalid:
        yield (
            f"{INVALID_MARK} {len(invalid)} of {len(runs)} runs are not valid; they are kept, but "
            "excluded from all numbers here. To repeat one, remove its folder:"
        )
        yield from (f"- {results.found[run].name}: {results.found[run].reason}" for run in invalid)
    missing = sum(results.condition(run) not in ("valid", "invalid") for run in runs)
    if missing:
        others = note_on_others([run for run in runs if run in results.others])
        yield f"{missing} of {len(runs)} runs are missing{others and '; '}{others}."
    for run in runs:
        missed = results.value(run, MISSED) if results.condition(run) == "valid" else 0
        if missed > 0:
            yield (
                f"- {results.found[run].name} missed {missed:.0f} evaluations: its means of "
                "consecutive evaluations cover more time."
            )
    for run in runs:
        if results.condition(run) == "valid" and results.found[run].reason.startswith(DIVERGED):
            yield f"- {results.found[run].name} {results.found[run].reason}"


def verdict_table(judged: Sequence[Judged], study: Study) -> StudyTable:
    """Return the expectations, the results and the verdicts."""
    headings = ["expectation", "verdict", "basis", "expected", "found", "seeds", "source"]
    rows = [
        [
            *(one.name, one.verdict, one.basis, one.expected, one.found),
            *("one seed" if one.seeds == 1 else str(one.seeds or ""), one.source),
        ]
        for one in judged
    ]
    data = [[*row, study.scale] for row in rows]
    return StudyTable(
        *("expectations", study_notes(study)), (headings, rows), ([*headings, "scale"], data)
    )


def run_table(results: Results) -> StudyTable:
    """Return a row per run: its folder, its condition, and all measures of the tables."""
    study = results.study
    asked = study.measures
    headings = [*study.factors, "seed", "run", "condition", "reason", "scale", *map(str, asked)]
    rows: list[list[object]] = []
    for run in study.runs:
        row: list[object] = [*(level for _, level in run.case.levels), run.seed]
        found = results.found.get(run)
        row += [found.name, found.condition, found.reason] if found else ["", "not run", ""]
        shown = found is not None and found.has_finished
        values = [plain_number(results.value(run, one)) if shown else "" for one in asked]
        rows.append([*row, study.scale, *values])
    return StudyTable("runs", (), ((), ()), (headings, rows))
