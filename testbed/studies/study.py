"""A study worked out: its cases, and the resolved scenario of every run."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from pathlib import Path

from testbed.errors import Problem, ScenarioError
from testbed.reports.run_measure import Measure
from testbed.runtimes import Auto, Docker, Native
from testbed.scenario.own_code import names_of, with_copies
from testbed.scenario.schema import Scenario
from testbed.scenario.synonyms import nearest
from testbed.scenario.traces import Locate
from testbed.studies.document import Selection, StudyDocument

LONGEST_NAME = 60
"""Of a run, as the command line takes it."""


@dataclass(frozen=True)
class Case:
    """One combination of levels.

    Attributes:
        levels: the level of every factor, in the order of the factors.
    """

    levels: tuple[tuple[str, str], ...]

    @property
    def name(self) -> str:
        """Its levels in words."""
        return ", ".join(spelled(*level) for level in self.levels) or "the scenario"

    def fits(self, where: Selection) -> bool:
        """Whether it has one of the levels of every factor in a selection."""
        own = dict(self.levels)
        return all(own[factor] in levels_of(wanted) for factor, wanted in where.items())


def spelled(factor: str, level: str) -> str:
    """A level in words: one that is a number is preceded by its factor."""
    return level if level[:1].isalpha() else f"{factor} {level}"


def levels_of(wanted: str | Sequence[str]) -> tuple[str, ...]:
    """One level or several, as several."""
    return (wanted,) if isinstance(wanted, str) else tuple(wanted)


def all_cases(levels: Mapping[str, Sequence[str]], chosen: Sequence[Selection]) -> list[Case]:
    """The cases of a study, each once.

    Args:
        levels: of every factor.
        chosen: products of levels; none for the product of all.
    """
    found: dict[Case, None] = {}
    for selection in chosen or [{}]:
        axes = [
            [(factor, level) for level in levels_of(selection.get(factor, names))]
            for factor, names in levels.items()
        ]
        found |= dict.fromkeys(Case(levels) for levels in product(*axes))
    return list(found)


@dataclass(frozen=True)
class StudyRun:
    """A run that a study needs.

    Attributes:
        case: of which case.
        seed: with which seed.
        scenario: resolved.
        beside: the folder that the user's own files are relative to.
        base_name: the name that its folder gets where no other run has it.
    """

    case: Case
    seed: int
    scenario: Scenario
    beside: Path
    base_name: str

    @property
    def identity(self) -> str:
        """What it is known by; see ``identity``."""
        return self.identities[0]

    @cached_property
    def identities(self) -> tuple[str, ...]:
        """What it may be known by: with ``runtime: auto``, any runtime may have been taken."""
        own = own_digests(self.scenario, lambda name: self.beside / name)
        settled = [self.scenario]
        if isinstance(self.scenario.runtime, Auto):
            settled = [
                self.scenario.model_copy(update={"runtime": runtime})
                for runtime in (Docker(name="docker"), Native(name="native"))
            ]
        return tuple(identity(scenario, own) for scenario in settled)

    def __hash__(self) -> int:
        return hash((self.case, self.seed))


def own_digests(scenario: Scenario, locate: Locate) -> dict[str, str]:
    """The SHA-256 of every file of the user's own that a scenario names, by the file's name.

    Args:
        scenario: resolved.
        locate: where a file lies: beside the scenario, or as a copy in a run's folder.

    Raises:
        OSError: a file cannot be read.
    """
    files = {Path(name).name: locate(name) for name in names_of(scenario).values()}
    return {
        name: hashlib.sha256(file.read_bytes()).hexdigest() for name, file in sorted(files.items())
    }


def identity(scenario: Scenario, own: Mapping[str, str]) -> str:
    """What a run is known by: its resolved scenario but for the name, and the user's own files.

    Args:
        scenario: resolved.
        own: see ``own_digests``.
    """
    data = with_copies(scenario)
    del data["name"]
    return hashlib.sha256(json.dumps([data, own], sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class Study:
    """A study, ready to be run.

    Attributes:
        document: what its file says.
        file: its file.
        scale: of its runs' length; 1 for as long as the document says.
        runs: what it needs, in the order of the cases, the seeds of a case one after the other.
        part: the figure, table or level that it was reduced to; empty for the whole study.
    """

    document: StudyDocument
    file: Path
    scale: float
    runs: tuple[StudyRun, ...]
    part: str = ""

    @property
    def name(self) -> str:
        """The study's name."""
        return self.document.name

    @property
    def cases(self) -> list[Case]:
        """Its cases, each once, in their order."""
        return list(dict.fromkeys(run.case for run in self.runs))

    @property
    def factors(self) -> list[str]:
        """The names of what is varied."""
        return list(self.document.vary)

    @property
    def measures(self) -> list[Measure]:
        """What its tables and expectations ask of a run, each once."""
        tables = self.document.report.tables.values()
        asked = [measure for table in tables for measure in table.measures]
        return list(dict.fromkeys(asked + [one.measure for one in self.document.expects.values()]))

    def select(self, where: Selection) -> list[Case]:
        """The cases that a selection fits."""
        return [case for case in self.cases if case.fits(where)]

    def only(self, part: str) -> Study:
        """What a figure, a table or a level needs of it.

        Raises:
            ScenarioError: there is nothing of that name in it.
        """
        report = self.document.report
        wanted = report.figures.get(part) or report.tables.get(part)
        if wanted is not None:
            cases = set(self.select(wanted.where))
        else:
            cases = {case for case in self.cases if part in (level for _, level in case.levels)}
        if not cases:
            names = list(dict.fromkeys([*report.figures, *report.tables, *self._levels()]))
            expected = f"a figure, a table or a level of {self.name}: {', '.join(names)}"
            problem = Problem(f"--only {part}", 0, "", "", expected, nearest(part, names))
            raise ScenarioError([problem])
        kept = tuple(run for run in self.runs if run.case in cases)
        return replace(self, runs=kept, part=part)

    def _levels(self) -> Iterator[str]:
        for case in self.cases:
            yield from (level for _, level in case.levels)


def slug(words: str) -> str:
    """Words as a part of a file's name: small letters, digits and hyphens."""
    return re.sub(r"[^a-z0-9]+", "-", words.lower()).strip("-")


def run_base_name(
    study: str, case: Case, seed: int, *, scale: float, taken: Collection[str] = ()
) -> str:
    """A name for a run's folder that says what it is, as far as there is room.

    It is none of those that are ``taken``, by cases that are spelled alike, as S1 and S1' are.
    """
    scaled = [] if scale == 1 else [f"x{scale:g}"]
    words = [study, *(level for _, level in case.levels), *scaled, f"s{seed}"]
    name = "-".join(map(slug, words))
    if len(name) > LONGEST_NAME:
        name = _marked(name, name)
    return _marked(name, " ".join(words)) if name in taken else name


def _marked(name: str, words: str) -> str:
    """A name with a digest of words at its end, no longer than a name may be."""
    digest = hashlib.sha256(words.encode()).hexdigest()[:8]
    return f"{name[: LONGEST_NAME - len(digest) - 1].rstrip('-')}-{digest}"
