"""Loads a study: validates it as a whole, derives its cases, and resolves their scenarios."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

from pydantic import ValidationError

from testbed.errors import InvalidValue, Problem, ScenarioError
from testbed.scenario import Override, Scenario
from testbed.scenario.document import Document, Keys, problem_at
from testbed.scenario.load import HasCuda, has_key
from testbed.scenario.load_workload import load_any, load_any_document
from testbed.scenario.metrics import unknown_metric
from testbed.scenario.parse import MOST_PROBLEMS, parse_file
from testbed.scenario.problems import explain
from testbed.scenario.scalars import display
from testbed.scenario.schema_node import SchemaNode
from testbed.scenario.source import find_scenario
from testbed.scenario.synonyms import nearest
from testbed.scenario.workload import Workload
from testbed.studies import workloads
from testbed.studies.document import (
    LONGEST_LEVEL,
    Curves,
    Factor,
    Selection,
    StudyDocument,
    TableOf,
    metrics_of,
)
from testbed.studies.scaling import scaled
from testbed.studies.study import (
    Case,
    Study,
    StudyRun,
    all_cases,
    compared_cases,
    levels_of,
    run_base_name,
)
from testbed.studies.workloads import (
    as_of_workloads,
    unsuited,
)

MOST_RUNS = 10_000
LEAST_SEEDS = 2
OF_THE_STUDY = {"name": "the study names its runs", "seed": "seeds are listed under `seeds`"}
"""Fields that no setting may set, with the reason."""

OWN_TABLES = ("expectations", "runs")
"""Tables that every study has."""


def is_study(path: Path | str) -> bool:
    """Whether a file is a study: its mapping has a scenario, or varies something.

    Raises:
        ScenarioError: it cannot be read.
    """
    file = find_scenario(Path(path))
    return _says_study(parse_file(file))


def _says_study(document: Document) -> bool:
    return has_key(document, "scenario") or has_key(document, "vary")


def load_study(path: Path | str, *, scale: float = 1.0, has_cuda: HasCuda | None = None) -> Study:
    """Read a study and resolve the scenarios of its runs.

    Args:
        path: its file, or the name of a study that comes with testbed.
        scale: factor for the length of every run (``stop.updates``, ``steps`` and ``time``) and
            for its evaluation interval (``evaluate.every``); below 1, evaluations also use
            fewer images, so that their share of the time does not grow.
        has_cuda: checks the host for a GPU if runs need one; None skips the check.

    Raises:
        ScenarioError: lists all problems found, each with its line.
    """
    path = find_scenario(Path(path))
    document = parse_file(path)
    return read_study(document, path, scale=scale, has_cuda=has_cuda)


def read_study(
    document: Document, path: Path, *, scale: float = 1.0, has_cuda: HasCuda | None = None
) -> Study:
    """Check a study that is already parsed, as if read from the file ``path``; see ``load_study``.

    Raises:
        ScenarioError: lists all problems found, each with its line.
    """
    if not _says_study(document):
        origin = document.origin(())
        expected, hint = (
            "a study: a `scenario`, and what to `vary` in it",
            ("To execute one run: testbed up"),
        )
        raise ScenarioError(
            [Problem(origin.file, origin.line, "", "a scenario", expected, f"{hint} {path}")]
        )
    return _Reading(document, path, None if has_cuda is None else cache(has_cuda)).study(scale)


@dataclass
class _Reading:
    """The state of checking a study's document."""

    document: Document  # the text as data, with the position of each value
    path: Path
    has_cuda: HasCuda | None  # see ``load_study``; called at most once
    problems: list[Problem] = field(default_factory=list)  # problems found so far
    model: StudyDocument = field(init=False)
    settings: dict[str, dict[str, tuple[Override, ...]]] = field(init=False)  # of every level
    cases: Sequence[Case] = ()

    def study(self, scale: float) -> Study:
        """Return the study.

        Raises:
            ScenarioError: it has problems.
        """
        self.problems += self.document.problems
        self.model = model = self._model()
        self.settings = {name: self._levels(name, factor) for name, factor in model.vary.items()}
        self._refuse_if_wrong()
        for index, selection in enumerate(model.cases):
            self._check_selection(selection, ("cases", index))
        self._refuse_if_wrong()
        self.cases = all_cases(self.settings, model.cases)
        self._check_number()
        self._check_references()
        self._refuse_if_wrong()
        runs = tuple(self._runs(scale))
        self._check_kind([run.scenario for run in runs])
        self._check_metrics({run.case: run.scenario for run in runs})
        self._refuse_if_wrong()
        return Study(self.model, self.path, scale, runs)

    def _model(self) -> StudyDocument:
        try:
            return StudyDocument.model_validate(self.document.data, strict=True)
        except ValidationError as error:
            errors = error.errors(include_url=False)[:MOST_PROBLEMS]
            found = explain(errors, self.document, root=SchemaNode(StudyDocument))
            raise ScenarioError([*self.problems, *found]) from None

    def _refuse_if_wrong(self) -> None:
        if self.problems:
            distinct = list(dict.fromkeys(self.problems))
            by_line = sorted(distinct, key=lambda problem: problem.line)
            raise ScenarioError(by_line[:MOST_PROBLEMS])

    def _problem(self, path: Keys, found: str, expected: str, hint: str = "") -> None:
        problem = problem_at(self.document, path, found=found, expected=expected, hint=hint)
        self.problems.append(problem)

    # ---- factors and cases ------------------------------------------------------------------

    def _levels(self, name: str, factor: Factor) -> dict[str, tuple[Override, ...]]:
        """Return the levels of a factor; in a list of settings, a level is named like its value."""
        path: Keys = ("vary", name)
        if not factor:
            self._problem(path, "no level", "settings, like [algorithm.learning_rate=0.1]")
        found: dict[str, tuple[Override, ...]] = {}
        if isinstance(factor, dict):
            for level, settings in factor.items():
                texts = (settings,) if isinstance(settings, str) else settings
                found[level] = tuple(self._settings(texts, (*path, level)))
            return found
        for index, text in enumerate(factor):
            level = text.partition("=")[2].strip()
            if len(level) > LONGEST_LEVEL:
                expected = f"a name for it, as it has more than {LONGEST_LEVEL} characters"
                self._problem((*path, index), display(level), f"{expected}: `name: {text[:20]}...`")
            elif level in found:
                self._problem((*path, index), f"{level} again", "each level once")
            found[level] = tuple(self._settings((text,), (*path, index)))
        return found

    def _settings(self, texts: Sequence[str], path: Keys) -> Iterator[Override]:
        for text in texts:
            try:
                override = Override.parse(text)
            except ScenarioError as error:
                for problem in error.problems:
                    found = problem.found if "=" in text else display(text)
                    expected = problem.expected.replace("like --set ", "like ")
                    self._problem(path, found, expected, problem.hint)
                continue
            if override.keys[0] in OF_THE_STUDY:
                why = OF_THE_STUDY[override.keys[0]]
                self._problem(path, display(text), f"another path: {why}")
            origin = self.document.origin(path)
            yield replace(override, option=origin.file, line=origin.line)

    def _check_number(self) -> None:
        seeds = self.model.seeds or ()
        runs = len(self.cases) * max(1, len(seeds))
        if runs > MOST_RUNS:
            self._problem(("vary",), f"{runs:,} runs", f"at most {MOST_RUNS:,}")
        if runs < 2:
            found = "nothing that varies" if self.model.vary else "no `vary`"
            expected = "at least two runs: levels of a factor, or seeds"
            hint = "For a single run, use a scenario: testbed up FILE"
            self._problem(("vary",), found, expected, hint)
        for index, seed in enumerate(seeds):
            if seed in seeds[:index]:
                self._problem(("seeds", index), f"{seed} again", "each seed once")

    # ---- references to cases ----------------------------------------------------------------

    def _check_selection(self, selection: Selection, path: Keys) -> bool:
        before, levels = len(self.problems), self.settings
        for factor, wanted in selection.items():
            inside = (*path, factor)
            if factor not in levels:
                expected = f"a factor of `vary`: {', '.join(levels) or 'none'}"
                self._problem(inside, factor, expected, nearest(factor, list(levels)))
                continue
            for level in levels_of(wanted):
                if level not in levels[factor]:
                    names = list(levels[factor])
                    expected = f"a level of {factor}: {', '.join(names)}"
                    quoted = [f'Write "{one}" in quotes' for one in names if _equal(one, level)]
                    hint = quoted[0] if quoted else nearest(level, names)
                    self._problem(inside, level, expected, hint)
        return len(self.problems) == before

    def _check_references(self) -> None:
        """Check that every selection names existing levels, and the required number of cases."""
        model = self.model
        for name in {*OWN_TABLES, *model.report.figures} & set(model.report.tables):
            self._problem(
                ("report", "tables", name), name, "another name: a file with this name exists"
            )
        for kind in ("figures", "tables"):
            for name, item in getattr(model.report, kind).items():
                path: Keys = ("report", kind, name)
                self._check_some(item.where, (*path, "where"))
                self._check_baseline(item, (*path, "baseline"))
                for index, factor in enumerate(getattr(item, "panels", ())):
                    if factor not in self.settings:
                        expected = f"a factor of `vary`: {', '.join(self.settings)}"
                        self._problem((*path, "panels", index), display(factor), expected)
        for index, number in enumerate(model.paper.numbers if model.paper else ()):
            self._check_some(number.where, ("paper", "numbers", index, "where"))
        for name, expectation in model.expects.items():
            path = ("expects", name)
            kinds = [one for one in ("order", "ratio", "difference") if getattr(expectation, one)]
            key = kinds[0] if kinds else "where"
            several = getattr(expectation, key) if kinds else None
            for index, selection in enumerate(several or ()):
                whole = {**expectation.where, **selection}
                self._check_one(whole, (*path, key, index))
            if several is None:
                self._check_one(expectation.where, (*path, "where"))

    def _check_some(self, where: Selection, path: Keys) -> None:
        if self._check_selection(where, path) and not any(one.fits(where) for one in self.cases):
            self._problem(path, "no case", "a combination of levels that a case has")

    def _check_baseline(self, table: Curves | TableOf, path: Keys) -> None:
        baseline = getattr(table, "baseline", {})
        if not baseline or not self._check_selection(baseline, path):
            return
        cases = [one for one in self.cases if one.fits(table.where)]
        if not compared_cases(cases, baseline):
            expected = "levels that a listed case has; another one differs from it only in these"
            self._problem(path, "nothing to compare", expected)
        if len(self.model.seeds or ()) < LEAST_SEEDS:
            expected = f"at least {LEAST_SEEDS} seeds, as the differences are tested"
            self._problem(path, "a baseline with one seed", expected, "seeds: [1, 2, 3, 4, 5]")

    def _check_one(self, where: Selection, path: Keys) -> None:
        if not self._check_selection(where, path):
            return
        fitting = [case.name for case in self.cases if case.fits(where)]
        if len(fitting) != 1:
            some = "; ".join(fitting[:4]) + ("; ..." if len(fitting) > 4 else "")
            found = f"{len(fitting)} cases ({some})" if fitting else "no case"
            self._problem(path, found, "a combination of levels that exactly one case has")

    def _check_kind(self, scenarios: Sequence[Scenario | Workload]) -> None:
        """Check that the report suits runs of this kind, and fill in the one of workloads."""
        found = [one for one in scenarios if isinstance(one, Workload)]
        if found:
            self.model = as_of_workloads(self.model, self.document, found)
        for path, wrong, expected in unsuited(self.model, scenarios) if scenarios else ():
            if self.document.at(path) is not None:
                self._problem(path, wrong, expected)

    def _check_metrics(self, scenarios: Mapping[Case, Scenario | Workload]) -> None:
        """Check that a metric that the study refers to is evaluated in one of its cases."""
        for path, name, where in metrics_of(self.model):
            fitting = [one for case, one in scenarios.items() if case.fits(where)]
            of_loss = name == "loss" and not any(isinstance(one, Workload) for one in fitting)
            if of_loss or self.document.at(path) is None:
                continue
            unknown = [_unknown_metric(one, name) for one in fitting]
            if fitting and all(unknown):
                expected, hint = unknown[0] or ("", "")
                self._problem(path, f"{name}, which is not evaluated", expected, hint)

    # ---- the scenarios ----------------------------------------------------------------------

    def _runs(self, scale: float) -> Iterator[StudyRun]:
        model = self.model
        inline = not isinstance(model.scenario, str)
        beside = self.path.parent if inline else (self.path.parent / str(model.scenario)).parent
        known: dict[str, Case] = {}
        names: set[str] = set()
        for case in self.cases:
            settings = [one for level in case.levels for one in self.settings[level[0]][level[1]]]
            try:
                scenario = self._resolve(settings)
            except ScenarioError as error:
                self.problems += error.problems
                continue
            text = scenario.model_dump_json(by_alias=True)
            if text in known:
                found = f"the same scenario for ({known[text].name}) and ({case.name})"
                expected = (
                    "a different scenario per case; does a later factor override the settings "
                    "of an earlier one?"
                )
                self._problem(("vary",), found, expected)
            known[text] = case
            for seed in model.seeds or (scenario.seed,):
                made = self._scaled(scenario.model_copy(update={"seed": seed}), scale)
                name = run_base_name(model.name, case, seed, scale=scale, taken=names)
                names.add(name)
                yield StudyRun(case, seed, made, beside, name)

    def _scaled(self, scenario: Scenario | Workload, scale: float) -> Scenario | Workload:
        try:
            return scaled(scenario, scale)
        except InvalidValue as error:
            self._problem(("scenario",), error.found, error.expected)
            return scenario

    def _resolve(self, settings: Sequence[Override]) -> Scenario | Workload:
        scenario, seeds = self.model.scenario, self.model.seeds or ()
        if isinstance(scenario, str):
            file = self.path.parent / scenario
            if not file.is_file():
                origin = self.document.origin(("scenario",))
                expected = "a scenario's file, relative to the folder of the study"
                found = f"no file {display(scenario)}"
                raise ScenarioError(
                    [Problem(origin.file, origin.line, "scenario", found, expected)]
                )
            return load_any(file, overrides=settings, has_cuda=self.has_cuda, seeds=seeds)
        return load_any_document(
            Document(self.document.root.value["scenario"]),
            lambda name: self.path.parent / name,
            overrides=settings,
            has_cuda=self.has_cuda,
            seeds=seeds,
        )


def _unknown_metric(scenario: Scenario | Workload, name: str) -> tuple[str, str] | None:
    if isinstance(scenario, Workload):
        return workloads.unknown_metric(scenario, name)
    return unknown_metric(scenario, name)


def _equal(one: str, other: str) -> bool:
    """Whether two texts are the same number."""
    try:
        return float(one) == float(other)
    except ValueError:
        return False
