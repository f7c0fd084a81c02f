"""The results of a study's runs, by case and seed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from testbed.reports.frames import Run
from testbed.reports.run_measure import Measure
from testbed.studies.found import Found
from testbed.studies.kept import KeptRun, duration_seconds
from testbed.studies.study import Case, Study, StudyRun, spelled

LONG_RUN_SECONDS = 3600.0
"""One seed is enough to judge a case if its runs take at least this long."""


@dataclass(frozen=True)
class Results:
    """The existing results of a study.

    Attributes:
        study: the study, or a part of it.
        whole: the whole study.
        found: its runs that have a folder or a file of kept numbers.
    """

    study: Study
    whole: Study
    found: Found
    _opened: dict[Path, Run | KeptRun] = field(default_factory=dict)
    _values: dict[tuple[Path, Measure], float] = field(default_factory=dict)

    @cached_property
    def by_case(self) -> dict[Case, list[StudyRun]]:
        """The runs of every case, in the order of the seeds."""
        cases: dict[Case, list[StudyRun]] = {}
        for run in self.whole.runs:
            cases.setdefault(run.case, []).append(run)
        return cases

    def run(self, run: StudyRun) -> Run | KeptRun:
        """Return the records of a run, or its kept numbers; its tables are read only once."""
        found = self.found[run]
        if found.path not in self._opened:
            self._opened[found.path] = (KeptRun.open if found.is_kept else Run)(found.path)
        return self._opened[found.path]

    def valid(self, case: Case) -> list[StudyRun]:
        """Return the runs of a case that have ended and can be trusted."""
        return [one for one in self.by_case[case] if self.condition(one) == "valid"]

    def condition(self, run: StudyRun) -> str:
        """Return the condition of a run; ``not run`` if it was not found."""
        return self.found[run].condition if run in self.found else "not run"

    def common_seeds(self, cases: Sequence[Case]) -> list[int]:
        """Return the seeds for which all these cases have a valid run, ascending."""
        sets = [{run.seed for run in self.valid(case)} for case in cases]
        return sorted(set.intersection(*sets))

    def values(self, case: Case, measure: Measure, seeds: Sequence[int]) -> list[float]:
        """Return a measure of a case's valid runs with these seeds, in their order."""
        by_seed = {run.seed: run for run in self.valid(case)}
        return [self.value(by_seed[seed], measure) for seed in seeds]

    def images(self, case: Case, measure: Measure) -> int | None:
        """Return the number of test images behind a measure; None if it is no share, or unknown."""
        if not measure.is_share:
            return None
        scenario = self.by_case[case][0].scenario
        of_all = scenario.dataset.test_images
        final = measure.name.startswith("final")
        return of_all if final or of_all is None else min(of_all, scenario.evaluate.images)

    def takes_long(self, case: Case) -> bool:
        """Whether any run of the case takes an hour or more."""
        runs = [self.run(one) for one in self.valid(case)]
        return any(
            (one.duration_seconds if isinstance(one, KeptRun) else duration_seconds(one))
            >= LONG_RUN_SECONDS
            for one in runs
        )

    def value(self, run: StudyRun, measure: Measure) -> float:
        """Return a measure of a run in ``found``."""
        key = (self.found[run].path, measure)
        if key not in self._values:
            opened = self.run(run)
            if isinstance(opened, KeptRun):
                self._values[key] = opened.value(measure)
            else:
                self._values[key] = measure.of(opened)
        return self._values[key]

    def short_name(self, case: Case) -> str:
        """Return a case's levels, restricted to factors in which the study's cases differ."""
        cases = [dict(one.levels) for one in self.by_case]
        differing = [
            spelled(factor, level)
            for factor, level in case.levels
            if any(one[factor] != level for one in cases)
        ]
        return " ".join(differing) or case.name


def spread(values: Sequence[float], show: Callable[[float], str]) -> str:
    """Format values of several seeds for one cell: their mean, minimum and maximum."""
    mean = show(sum(values) / len(values))
    least, greatest = show(min(values)), show(max(values))
    return mean if least == greatest else f"{mean} ({least} to {greatest})"
