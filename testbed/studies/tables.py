"""Tables of a study: Markdown for people, CSV for programs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import isfinite, isinf

from testbed.algorithms.frame.stop import DIVERGED
from testbed.reports.run_measure import Measure
from testbed.reports.text_table import csv_text, markdown
from testbed.scenario.checks import substitutes
from testbed.studies.document import PaperNumber, TableOf
from testbed.studies.results import Results, spread
from testbed.studies.study import Case, Study
from testbed.studies.verdicts import Judged

INVALID_MARK = "†"
MISSED = Measure("missed_evaluations")


@dataclass(frozen=True)
class StudyTable:
    """One table.

    Attributes:
        name: name of the table and of its file.
        notes: sentences to print with it.
        shown: headings and rows for people.
        data: headings and rows for programs.
    """

    name: str
    notes: tuple[str, ...]
    shown: tuple[Sequence[str], Sequence[Sequence[str]]]
    data: tuple[Sequence[str], Sequence[Sequence[object]]]

    def markdown(self) -> str:
        """Return heading, table and notes as Markdown."""
        notes = "".join(f"{note}\n" for note in self.notes)
        return f"### {self.name}\n\n{markdown(*self.shown)}" + (f"\n{notes}" if notes else "")

    def csv(self) -> str:
        """Return the table as CSV."""
        return csv_text(*self.data)


def study_notes(study: Study) -> tuple[str, ...]:
    """Return the notes for every table of a study that is scaled, or uses substitutes."""
    told = [one for run in study.runs for one in substitutes(run.scenario)]
    labels = [f"**SUBSTITUTE**: {one}." for one in dict.fromkeys(told)]
    if study.scale != 1:
        labels.append(
            "**SCALED**: the length of every run and its evaluation interval are multiplied by "
            f"{study.scale:g}."
        )
    return tuple(labels)


def result_table(name: str, wanted: TableOf, results: Results) -> StudyTable:
    """Return a row per case: its levels, its measures over the seeds, and the paper's numbers."""
    study = results.study
    cases = study.select(wanted.where)
    paper = study.document.paper
    numbers = paper.numbers if paper else ()
    published = [
        measure for measure in wanted.measures if any(_of(numbers, measure, one) for one in cases)
    ]
    columns = [
        (measure, is_paper)
        for measure in wanted.measures
        for is_paper in ((False, True) if measure in published else (False,))
    ]
    headings = [*study.factors, "seeds"]
    headings += [f"{one.title}, paper" if is_paper else one.title for one, is_paper in columns]
    rows = []
    for case in cases:
        cells = [
            _published(numbers, one, case) if is_paper else _measured(one, case, results)
            for one, is_paper in columns
        ]
        rows.append([*(level for _, level in case.levels), _seeds(case, results), *cells])
    data_headings = [*study.factors, "seeds", "invalid", "scale"]
    data_headings += [
        f"{measure} {part}"
        for measure in wanted.measures
        for part in ("mean", "least", "greatest", "paper")
    ]
    data = [_data(case, wanted.measures, numbers, results) for case in cases]
    notes = [*study_notes(study), *_notes(cases, results)]
    if published and paper is not None:
        notes.append(f"Paper: {paper.source}.")
    return StudyTable(name, tuple(notes), (headings, rows), (data_headings, data))


def _measured(measure: Measure, case: Case, results: Results) -> str:
    values = [results.value(run, measure) for run in results.valid(case)]
    if values:
        return spread(values, measure.show)
    conditions = [results.condition(run) for run in results.by_case[case]]
    return "not valid" if "invalid" in conditions else "not run"


def _of(numbers: Sequence[PaperNumber], measure: Measure, case: Case) -> list[PaperNumber]:
    return [one for one in numbers if one.measure == measure and case.fits(one.where)]


def _published(numbers: Sequence[PaperNumber], measure: Measure, case: Case) -> str:
    return "; ".join(
        f"{one.value if isinstance(one.value, str) else measure.show(one.value)} ({one.source})"
        for one in _of(numbers, measure, case)
    )


def _seeds(case: Case, results: Results) -> str:
    """Return how many of the seeds the numbers are based on."""
    conditions = [results.condition(run) for run in results.by_case[case]]
    mark = INVALID_MARK if "invalid" in conditions else ""
    valid = conditions.count("valid")
    return f"{valid}{mark}" if valid == len(conditions) else f"{valid} of {len(conditions)}{mark}"


def _data(
    case: Case, measures: Sequence[Measure], numbers: Sequence[PaperNumber], results: Results
) -> list[object]:
    conditions = [results.condition(run) for run in results.by_case[case]]
    row: list[object] = [level for _, level in case.levels]
    row += [conditions.count("valid"), conditions.count("invalid"), results.study.scale]
    for measure in measures:
        values = [results.value(run, measure) for run in results.valid(case)]
        summed = [sum(values) / len(values), min(values), max(values)] if values else [None] * 3
        row += [plain_number(value) for value in summed]
        row.append("; ".join(str(one.value) for one in _of(numbers, measure, case)))
    return row


def plain_number(value: float | None) -> object:
    """Return a number for CSV: empty if not measured, ``inf`` for never."""
    if value is None or not (isfinite(value) or isinf(value)):
        return ""
    return int(value) if isfinite(value) and value == int(value) else value


def _notes(cases: Sequence[Case], results: Results) -> Iterator[str]:
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
        yield f"{missing} of {len(runs)} runs are missing."
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
        has_ended = found is not None and found.condition in ("valid", "invalid")
        values = [plain_number(results.value(run, one)) if has_ended else "" for one in asked]
        rows.append([*row, study.scale, *values])
    return StudyTable("runs", (), ((), ()), (headings, rows))
