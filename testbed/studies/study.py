"""A loaded study: its cases, and the resolved scenario of every run."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import TypeVar

from testbed.errors import Problem, ScenarioError
from testbed.reports.run_measure import Measure
from testbed.runtimes import Auto, Docker, Native
from testbed.scenario.checks import substitutes
from testbed.scenario.costs import with_cost
from testbed.scenario.own_code import names_of, with_copies
from testbed.scenario.schema import Scenario
from testbed.scenario.source import Locate
from testbed.scenario.synonyms import nearest
from testbed.scenario.workload import Workload
from testbed.studies.document import Curves, Selection, StudyDocument, TableOf

T = TypeVar("T")

LONGEST_NAME = 60
"""Maximum length of a run's name, as on the command line."""


@dataclass(frozen=True)
class Case:
    """One combination of levels."""

    levels: tuple[tuple[str, str], ...]  # the level of every factor, in the order of the factors

    @property
    def name(self) -> str:
        """The levels as text."""
        return ", ".join(spelled(*level) for level in self.levels) or "the scenario"

    def differing(self, others: Iterable[Case], *, apart_from: Collection[str] = ()) -> list[str]:
        """Return the levels in which it differs from any of the others, as text."""
        levels = [dict(one.levels) for one in others]
        return [
            spelled(factor, level)
            for factor, level in self.levels
            if factor not in apart_from and any(one[factor] != level for one in levels)
        ]

    def fits(self, where: Selection) -> bool:
        """Whether the case has one of the selected levels of every factor in a selection."""
        own = dict(self.levels)
        return all(own[factor] in levels_of(wanted) for factor, wanted in where.items())


def spelled(factor: str, level: str) -> str:
    """Return a level as text: a number is preceded by its factor."""
    return level if level[:1].isalpha() else f"{factor} {level}"


def levels_of(wanted: str | Sequence[str]) -> tuple[str, ...]:
    """Return one or several levels as a tuple."""
    return (wanted,) if isinstance(wanted, str) else tuple(wanted)


def all_cases(levels: Mapping[str, Collection[str]], chosen: Sequence[Selection]) -> list[Case]:
    """Return the cases of a study without duplicates; ``chosen``: if empty, all combinations."""
    found: dict[Case, None] = {}
    for selection in chosen or [{}]:
        axes = [
            [(factor, level) for level in levels_of(selection.get(factor, tuple(names)))]
            for factor, names in levels.items()
        ]
        found |= dict.fromkeys(Case(levels) for levels in product(*axes))
    return list(found)


def compared_cases(cases: Sequence[Case], baseline: Mapping[str, str]) -> list[tuple[Case, Case]]:
    """Return every case that is not a baseline, with the baseline that differs only in its levels.

    Cases without such a baseline are left out.
    """
    known = set(cases)
    pairs = []
    for case in cases:
        own = Case(tuple((factor, baseline.get(factor, level)) for factor, level in case.levels))
        if own != case and own in known:
            pairs.append((case, own))
    return pairs


@dataclass(frozen=True)
class StudyRun:
    """A run that a study needs."""

    case: Case
    seed: int
    scenario: Scenario | Workload  # resolved
    beside: Path  # base folder for paths of the user's own files
    base_name: str  # name of its folder, if no other run has it

    @property
    def substitutes(self) -> tuple[str, ...]:
        """What its scenario substitutes for something that is not available."""
        return () if isinstance(self.scenario, Workload) else substitutes(self.scenario)

    @property
    def identity(self) -> str:
        """Identity of the run; see ``identity``."""
        return self.identities[0]

    @cached_property
    def identities(self) -> tuple[str, ...]:
        """All possible identities: with ``runtime: auto``, the runtime can be any."""
        scenario, own = self._with_copies()
        settled = [scenario]
        if isinstance(self.scenario.runtime, Auto):
            settled = [
                scenario.model_copy(update={"runtime": runtime})
                for runtime in (Docker(name="docker"), Native(name="native"))
            ]
        return tuple(identity(scenario, own) for scenario in settled)

    def _with_copies(self) -> tuple[Scenario | Workload, Mapping[str, str]]:
        """Return the scenario, a workload as its run folder has it, and the digests of its files.

        Raises:
            ScenarioError: two programs of a workload have files of one name.
        """
        if not isinstance(self.scenario, Workload):
            return self.scenario, own_digests(self.scenario, lambda name: self.beside / name)
        from testbed.run.prepare_workload import with_files

        workload, files = with_files(self.scenario, self.beside)
        return workload, digests({file.name: file for file in files})

    def __hash__(self) -> int:
        return hash((self.case, self.seed))


def own_digests(scenario: Scenario, locate: Locate) -> dict[str, str]:
    """Return the SHA-256 of every user file that a scenario names, by file name.

    ``locate`` finds a file: next to the scenario, or its copy in a run folder.

    Raises:
        OSError: a file cannot be read.
    """
    return digests({Path(name).name: locate(name) for name in names_of(scenario).values()})


def digests(files: Mapping[str, Path]) -> dict[str, str]:
    """Return the SHA-256 of files, by name; OSError if one cannot be read."""
    return {
        name: hashlib.sha256(file.read_bytes()).hexdigest() for name, file in sorted(files.items())
    }


def identity(scenario: Scenario | Workload, own: Mapping[str, str]) -> str:
    """Return the identity of a run: its scenario without the name, and the user's files."""
    if isinstance(scenario, Workload):
        data = scenario.model_dump(mode="json", by_alias=True, exclude_none=True)
    else:
        data = with_copies(with_cost(scenario, None))
    del data["name"]
    return hashlib.sha256(json.dumps([data, own], sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class Study:
    """A study, ready to run."""

    document: StudyDocument  # content of its file
    file: Path  # path of its file
    scale: float  # factor for the length of its runs; 1 keeps the length in the document
    runs: tuple[StudyRun, ...]  # required runs, in the order of the cases and then of the seeds
    part: str = ""  # the figure, table or level that it is restricted to; empty for the whole study

    @property
    def name(self) -> str:
        """Name of the study."""
        return self.document.name

    @property
    def cases(self) -> list[Case]:
        """Its cases without duplicates, in order."""
        return list(dict.fromkeys(run.case for run in self.runs))

    @property
    def factors(self) -> list[str]:
        """Names of the factors."""
        return list(self.document.vary)

    @property
    def measures(self) -> list[Measure]:
        """Measures that its tables and expectations use, without duplicates."""
        tables = self.document.report.tables.values()
        asked = [measure for table in tables for measure in table.measures]
        return list(dict.fromkeys(asked + [one.measure for one in self.document.expects.values()]))

    @property
    def figures(self) -> dict[str, Curves]:
        """Figures of the selected part, by name."""
        return self._of_part(self.document.report.figures)

    @property
    def tables(self) -> dict[str, TableOf]:
        """Tables of the selected part, by name."""
        return self._of_part(self.document.report.tables)

    def _of_part(self, items: dict[str, T]) -> dict[str, T]:
        report = self.document.report
        whole = self.part not in (*report.figures, *report.tables)
        return {name: one for name, one in items.items() if whole or name == self.part}

    def select(self, where: Selection) -> list[Case]:
        """Return the cases that match a selection."""
        return [case for case in self.cases if case.fits(where)]

    def only(self, part: str) -> Study:
        """Return the part of the study that a figure, a table or a level needs.

        Raises:
            ScenarioError: the study has nothing of that name.
        """
        report = self.document.report
        wanted = report.figures.get(part) or report.tables.get(part)
        if wanted is not None:
            cases = set(self.select(wanted.where))
        else:
            cases = {case for case in self.cases if part in (level for _, level in case.levels)}
        if not cases:
            levels = [level for case in self.cases for _, level in case.levels]
            names = list(dict.fromkeys([*report.figures, *report.tables, *levels]))
            expected = f"a figure, a table or a level of {self.name}: {', '.join(names)}"
            problem = Problem(f"--only {part}", 0, "", "", expected, nearest(part, names))
            raise ScenarioError([problem])
        kept = tuple(run for run in self.runs if run.case in cases)
        return replace(self, runs=kept, part=part)


def slug(words: str) -> str:
    """Convert text to a part of a file name: lower-case letters, digits and hyphens."""
    return re.sub(r"[^a-z0-9]+", "-", words.lower()).strip("-")


def run_base_name(
    study: str, case: Case, seed: int, *, scale: float, taken: Collection[str] = ()
) -> str:
    """Return a descriptive name for a run's folder, up to the maximum length.

    It avoids the names in ``taken``, which cases with the same slug have, such as S1 and S1'.
    """
    scaled = [] if scale == 1 else [f"x{scale:g}"]
    words = [study, *(level for _, level in case.levels), *scaled, f"s{seed}"]
    name = "-".join(map(slug, words))
    if len(name) > LONGEST_NAME:
        name = _marked(name, name)
    return _marked(name, " ".join(words)) if name in taken else name


def _marked(name: str, words: str) -> str:
    """Return a name with a digest of ``words`` appended, at most as long as a name may be."""
    digest = hashlib.sha256(words.encode()).hexdigest()[:8]
    return f"{name[: LONGEST_NAME - len(digest) - 1].rstrip('-')}-{digest}"
