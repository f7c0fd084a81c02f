"""The numbers of a study's runs, by case and seed."""

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
"""A case whose runs take as long may be judged by one seed."""


@dataclass(frozen=True)
class Results:
    """What is there of a study.

    Attributes:
        study: the study, or a part of it.
        whole: all of it.
        found: its runs that have a folder, or of which a file was kept.
    """

    study: Study
    whole: Study
    found: Found
    _opened: dict[Path, Run | KeptRun] = field(default_factory=dict)
    _values: dict[tuple[Path, Measure], float] = field(default_factory=dict)

    @cached_property
    def by_case(self) -> dict[Case, list[StudyRun]]:
        """The runs of every case, by seed as listed."""
        cases: dict[Case, list[StudyRun]] = {}
        for run in self.whole.runs:
            cases.setdefault(run.case, []).append(run)
        return cases

    def run(self, run: StudyRun) -> Run | KeptRun:
        """The records of a run, or what was kept of them; its tables are read once."""
        found = self.found[run]
        if found.path not in self._opened:
            self._opened[found.path] = (KeptRun.open if found.is_kept else Run)(found.path)
        return self._opened[found.path]

    def valid(self, case: Case) -> list[StudyRun]:
        """The runs of a case that have ended, and that may be believed."""
        return [one for one in self.by_case[case] if self.condition(one) == "valid"]

    def condition(self, run: StudyRun) -> str:
        """How a run stands; ``not run`` if it has no folder."""
        return self.found[run].condition if run in self.found else "not run"

    def common_seeds(self, cases: Sequence[Case]) -> list[int]:
        """The seeds that all these cases have a valid run of, ascending."""
        sets = [{run.seed for run in self.valid(case)} for case in cases]
        return sorted(set.intersection(*sets))

    def values(self, case: Case, measure: Measure, seeds: Sequence[int]) -> list[float]:
        """A measure of a case's valid runs with these seeds, in their order."""
        by_seed = {run.seed: run for run in self.valid(case)}
        return [self.value(by_seed[seed], measure) for seed in seeds]

    def images(self, case: Case, measure: Measure) -> int | None:
        """The test images that a measure is a share of; None if it is none, or nobody knows."""
        if not measure.is_share:
            return None
        scenario = self.by_case[case][0].scenario
        of_all = scenario.dataset.test_images
        final = measure.name.startswith("final")
        return of_all if final or of_all is None else min(of_all, scenario.evaluate.images)

    def takes_long(self, case: Case) -> bool:
        """Whether a run of the case takes an hour or more."""
        runs = [self.run(one) for one in self.valid(case)]
        return any(
            (one.duration_seconds if isinstance(one, KeptRun) else duration_seconds(one))
            >= LONG_RUN_SECONDS
            for one in runs
        )

    def value(self, run: StudyRun, measure: Measure) -> float:
        """A measure of a run that was found."""
        key = (self.found[run].path, measure)
        if key not in self._values:
            opened = self.run(run)
            if isinstance(opened, KeptRun):
                self._values[key] = opened.value(measure)
            else:
                self._values[key] = measure.of(opened)
        return self._values[key]

    def short_name(self, case: Case) -> str:
        """A case by the levels in which the study's cases differ at all."""
        cases = [dict(one.levels) for one in self.by_case]
        differing = [
            spelled(factor, level)
            for factor, level in case.levels
            if any(one[factor] != level for one in cases)
        ]
        return " ".join(differing) or case.name


def spread(values: Sequence[float], show: Callable[[float], str]) -> str:
    """Values of several seeds in one cell: their mean, and the least to the greatest."""
    mean = show(sum(values) / len(values))
    least, greatest = show(min(values)), show(max(values))
    return mean if least == greatest else f"{mean} ({least} to {greatest})"
