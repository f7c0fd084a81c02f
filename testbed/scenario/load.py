"""Loads a scenario: parse, apply options, check as a whole, report all problems at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from testbed.errors import UNKNOWN_FILE, Problem, ScenarioError
from testbed.scenario.availability import check_availability
from testbed.scenario.checks import check_device, check_whole
from testbed.scenario.costs import check_profiles, with_profiles, with_tables
from testbed.scenario.document import Document, problem_at
from testbed.scenario.override import Override, extend
from testbed.scenario.own_code import apply_own_code, check_files, with_folder
from testbed.scenario.parse import MOST_PROBLEMS, parse_document, parse_file
from testbed.scenario.problems import explain
from testbed.scenario.schema import Scenario
from testbed.scenario.schema_node import SchemaNode
from testbed.scenario.source import Locate, find_scenario
from testbed.scenario.traces import check_recorded_rates, check_unrecorded, with_means

Model = TypeVar("Model", bound=BaseModel)

HasCuda = Callable[[], bool]
"""Whether this host can compute on a GPU."""


def load(
    path: Path | str,
    *,
    overrides: Sequence[Override] = (),
    custom_files: Path | None = None,
) -> Scenario:
    """Load a scenario file.

    The file of a user's own algorithm is executed, so that its config class checks the
    options; the copy in a run's folder is not.

    Args:
        path: the file, or the name of a scenario that comes with testbed.
        overrides: values that replace the file's.
        custom_files: folder with copies of the user's own files, as in a run; by default their
            paths are relative to the scenario's folder.

    Raises:
        ScenarioError: holds all problems, each with its line.
    """
    path = find_scenario(Path(path))

    def locate(name: str) -> Path:
        return path.parent / name if custom_files is None else custom_files / Path(name).name

    return _load(parse_file(path), locate, overrides, own_code=custom_files is None)


def load_text(
    text: str,
    *,
    file: str = "scenario",
    locate: Locate | None = None,
    overrides: Sequence[Override] = (),
) -> Scenario:
    """Load a scenario from YAML text.

    Args:
        text: the YAML.
        file: its name in messages.
        locate: returns the path of a file that the scenario refers to: a base, or one of the
            user's own; None if there are no files, and no base.
        overrides: values that replace the text's.

    Raises:
        ScenarioError: holds all problems, each with its line.
    """
    return _load(parse_document(text, file), locate, overrides, own_code=False)


def _load(
    document: Document, locate: Locate | None, overrides: Sequence[Override], *, own_code: bool
) -> Scenario:
    refuse_study(document)
    done = completed(document, SchemaNode(Scenario), locate=locate, overrides=overrides)
    return load_completed(done, locate=locate, own_code=own_code)


def refuse_study(document: Document) -> None:
    """Check that a document is not a study.

    Raises:
        ScenarioError: it is one.
    """
    if has_key(document, "scenario"):
        hint = f"Run a study with `testbed sweep {document.root.file}`"
        found, expected = "a study", "a scenario"
        raise ScenarioError([problem_at(document, ("scenario",), found, expected, hint)])


def load_completed(
    document: Document,
    *,
    locate: Locate | None,
    own_code: bool,
    has_cuda: HasCuda | None = None,
    seeds: Sequence[int] = (),
) -> Scenario:
    """Check a scenario to which its bases and overrides are applied.

    Args:
        document: the scenario, also one inside another document.
        locate: see ``load_text``.
        own_code: whether the user's own files, found with ``locate``, check their options.
        has_cuda: called before a run if a simulation uses a GPU; None to skip the check.
        seeds: seeds to check it with, instead of its own.
    """
    root, file = SchemaNode(Scenario), document.root.file
    if is_workload(document):
        found, expected = "a workload", "a training, with algorithm, model and dataset"
        raise ScenarioError([problem_at(document, ("workload",), found, expected)])
    if has_key(document, "links"):
        expected = "a `workload`: the nodes of a training are on one switch, each with its `link`"
        raise ScenarioError([problem_at(document, ("links",), "links between switches", expected)])
    scenario, errors = validate(document, Scenario)
    problems = [*document.problems, *explain(errors[:MOST_PROBLEMS], document, root=root)]
    if locate is not None:
        problems += [problem_at(document, *one) for one in check_files(document, locate)]
    if own_code or locate is None:
        problems += [problem_at(document, *one) for one in check_profiles(document, locate)]
    if scenario is not None and (own_code or locate is None):
        problems += [problem_at(document, *one) for one in check_unrecorded(scenario)]
        for filled in (with_tables, with_means):
            scenario, unread = filled(scenario, document, locate)
            problems += unread
        scenario = scenario if problems else with_profiles(scenario, locate)
    if scenario is not None and own_code and locate is not None:
        problems += check_availability(scenario, document, locate)
        problems += check_recorded_rates(scenario, document, locate)
    if scenario is not None and not problems:
        problems += _check_seeds(scenario, document, seeds)
        if own_code and locate is not None:
            scenario, unfit = apply_own_code(with_folder(scenario, locate), document, locate)
            problems += unfit
        if has_cuda is not None:
            problems += [problem_at(document, *one) for one in check_device(scenario, has_cuda)]
    if scenario is None or problems:
        raise ScenarioError(shortened(problems, hidden=len(errors[MOST_PROBLEMS:]), file=file))
    return scenario


@contextmanager
def with_source_lines(file: Path | str, overrides: Sequence[Override] = ()) -> Iterator[None]:
    """Add file and line to errors in this block that only have a value's path.

    Args:
        file: the scenario in use, or its name if it comes with testbed.
        overrides: values that replaced the file's.

    Raises:
        ScenarioError: the error raised inside, with files and lines; unchanged if the file can
            no longer be read.
    """
    try:
        yield
    except ScenarioError as error:
        if all(problem.file != UNKNOWN_FILE for problem in error.problems):
            raise
        try:
            path = find_scenario(Path(file))
            given, root, folder = parse_file(path), SchemaNode(Scenario), path.parent
            document = completed(given, root, locate=folder.joinpath, overrides=overrides)
        except ScenarioError:  # the file was deleted or changed in the meantime
            raise error from None
        raise type(error)([_with_line(one, document) for one in error.problems]) from None


def _with_line(problem: Problem, document: Document) -> Problem:
    """Add file and line of the value to a problem; for a default, those of the enclosing value."""
    if problem.file != UNKNOWN_FILE:
        return problem
    keys = (int(key) if key.isdigit() else key for key in problem.path.split("."))
    origin = document.origin(tuple(keys))
    return replace(problem, file=origin.file, line=origin.line)


def completed(
    document: Document,
    root: SchemaNode,
    *,
    locate: Locate | None,
    overrides: Sequence[Override],
) -> Document:
    """Add the values of extended files, and apply overrides."""
    document = extend(document, root, locate)
    for override in overrides:
        document = override.apply(document, root)
    return document


def _check_seeds(scenario: Scenario, document: Document, seeds: Sequence[int]) -> list[Problem]:
    """Check the scenario as a whole with each seed; name the first if only some fail."""

    def with_seed(seed: int) -> Scenario:
        return scenario.model_copy(update={"seed": seed})

    by_seed = {
        seed: [problem_at(document, *one) for one in check_whole(with_seed(seed))]
        for seed in seeds or (scenario.seed,)
    }
    first = next(iter(by_seed.values()))
    always = [one for one in first if all(one in found for found in by_seed.values())]
    sometimes: dict[tuple[str, int, str], Problem] = {}
    for seed, found in by_seed.items():
        for one in found:
            if one not in always:
                named = replace(one, found=f"{one.found}, with seed {seed}")
                sometimes.setdefault((one.file, one.line, one.path), named)
    return [*always, *sometimes.values()]


def is_workload(document: Document) -> bool:
    """Return whether a document describes programs of the user's own in place of a training."""
    return has_key(document, "workload")


def has_key(document: Document, key: str) -> bool:
    """Return whether a document is a mapping with this key."""
    return isinstance(document.root.value, dict) and key in document.root.value


def validate(document: Document, model: type[Model]) -> tuple[Model | None, list[ErrorDetails]]:
    """Return the document as a model, or None and pydantic's errors."""
    try:
        return model.model_validate(document.data, strict=True), []
    except ValidationError as error:
        return None, error.errors(include_url=False)


def shortened(problems: list[Problem], *, hidden: int, file: str) -> list[Problem]:
    """Sort problems by file and line, and count those left out at the end."""
    shown = sorted(problems, key=lambda problem: (problem.file, problem.line))[:MOST_PROBLEMS]
    hidden += len(problems) - len(shown)
    if hidden:
        shown.append(Problem(file, 0, "", "", "", f"and {hidden:,} more problems"))
    return shown
