"""Tables that compare cases with a baseline: differences over the seeds, and their tests."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf, isnan, nan

from testbed.reports.run_measure import Measure
from testbed.studies.document import TableOf
from testbed.studies.found import Results
from testbed.studies.statistics import Significance, holm, log_rank, paired
from testbed.studies.study import Case, compared_cases, spelled
from testbed.studies.tables import StudyTable, plain_number, study_notes

COLUMNS = ("difference", "low", "high", "test", "p", "p_holm", "p_signed_rank")


def comparison_table(name: str, wanted: TableOf, results: Results) -> StudyTable:
    """Return a row per measure of every case that is compared with a baseline.

    Measures are compared over the seeds for which both cases have a valid run. If a value was not
    reached with every seed, there is no difference, and how soon it is reached is compared.
    """
    study = results.study
    pairs = compared_cases(study.select(wanted.where), wanted.baseline)
    keys = [(case, base, measure) for case, base in pairs for measure in wanted.measures]
    tests = [_test(*key, results) for key in keys]
    corrected = holm([test.p for test in tests])
    rows, data = [], []
    for (case, base, measure), test, p in zip(keys, tests, corrected, strict=True):
        levels, seeds = [level for _, level in case.levels], results.common_seeds([case, base])
        both = [results.estimate(one, measure, seeds) for one in (base, case)]
        shown = [one.show(measure.show) if one else "not run" for one in both]
        rows.append([*levels, measure.title, str(len(seeds)), *shown, *_told(measure, test, p)])
        numbers = [one.center if one else nan for one in both]
        numbers += [test.difference, test.low, test.high]
        plain = [*map(plain_number, numbers), test.name]
        plain += map(plain_number, (test.p, p, test.signed_rank))
        data.append([*levels, str(measure), len(seeds), *plain])
    count = sum(not isnan(p) for p in corrected)
    head = [*study.factors, "measure", "seeds"]
    told = ["baseline", "value", "difference", "test", "p", "p, Holm", "p, signed-rank"]
    notes = (*study_notes(study), *_notes(wanted, results, count))
    return StudyTable(
        name, notes, ([*head, *told], rows), ([*head, "baseline", "value", *COLUMNS], data)
    )


def _test(case: Case, base: Case, measure: Measure, results: Results) -> Significance:
    seeds = results.common_seeds([case, base])
    if not seeds:
        return Significance("", nan)
    first, second = (results.values(one, measure, seeds) for one in (case, base))
    if inf not in (*first, *second):
        return paired(first, second, results.study.document.report.shown)
    ends, base_ends = (results.ends(one, measure, seeds) for one in (case, base))
    return log_rank((first, ends), (second, base_ends))


def _told(measure: Measure, test: Significance, corrected: float) -> Iterator[str]:
    """Yield difference, test and p-values as text; a cell is empty if there is none."""
    if isnan(test.difference):
        yield ""
    else:
        difference, low, high = map(measure.show, (test.difference, test.low, test.high))
        yield difference if low == high else f"{difference} ({low} to {high})"
    yield test.name
    for p in (test.p, corrected, test.signed_rank):
        yield "" if isnan(p) else "< 0.001" if p < 0.001 else f"{p:.3f}"


def _notes(wanted: TableOf, results: Results, tests: int) -> Iterator[str]:
    interval = results.study.document.report.shown.of_differences
    baseline = ", ".join(spelled(*one) for one in wanted.baseline.items())
    yield (
        f"Baseline: {baseline}. Difference: mean over the common seeds of the value minus that of "
        f"the baseline, with its {interval.title}. p: two-sided; Holm: corrected for the {tests} "
        "tests of this table. Signed-rank: Wilcoxon's, of the same pairs."
    )
    if any(measure.definition.column for measure in wanted.measures):
        yield (
            "A value that a run never reached is censored at the end of the run: medians are those "
            "of Kaplan and Meier, and the log-rank test compares the cases without pairs."
        )
