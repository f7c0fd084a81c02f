"""Loads a workload, or whichever kind of scenario a file has."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from testbed.errors import Problem, ScenarioError
from testbed.scenario.costs import with_tables
from testbed.scenario.document import Document, problem_at
from testbed.scenario.flower_versions import check_flower_versions
from testbed.scenario.link_checks import check_node_links
from testbed.scenario.load import (
    HasCuda,
    completed,
    is_workload,
    load_completed,
    refuse_study,
    shortened,
    validate,
)
from testbed.scenario.load_flower import with_flower
from testbed.scenario.override import Override
from testbed.scenario.parse import MOST_PROBLEMS, parse_file
from testbed.scenario.problems import explain
from testbed.scenario.run_file import of_run
from testbed.scenario.schema import Scenario
from testbed.scenario.schema_node import SchemaNode
from testbed.scenario.source import Locate, find_scenario
from testbed.scenario.traces import with_means
from testbed.scenario.workload import Workload
from testbed.scenario.workload_availability import check_availabilities
from testbed.scenario.workload_checks import check_program_files, check_workload

OF_A_TRAINING = tuple(name for name in Scenario.model_fields if name not in Workload.model_fields)
"""Keys of a training that a workload does not have."""


def load_any(
    path: Path | str,
    *,
    overrides: Sequence[Override] = (),
    has_cuda: HasCuda | None = None,
    seeds: Sequence[int] = (),
) -> Scenario | Workload:
    """Load a scenario file of either kind; arguments are those of ``load_completed``."""
    path = find_scenario(Path(path))
    document = parse_file(path)
    return load_any_document(
        *(document, lambda name: path.parent / name),
        overrides=overrides,
        has_cuda=has_cuda,
        seeds=seeds,
    )


def load_any_document(
    document: Document,
    locate: Locate,
    *,
    overrides: Sequence[Override] = (),
    has_cuda: HasCuda | None = None,
    seeds: Sequence[int] = (),
) -> Scenario | Workload:
    """Load a parsed scenario of either kind; ``locate`` finds the files that it names.

    Arguments and errors are those of ``load_completed``.
    """
    done = _completed(document, locate, overrides)
    if is_workload(done):
        return load_workload_document(done, locate=locate)
    refuse_study(document)
    return load_completed(done, locate=locate, own_code=True, has_cuda=has_cuda, seeds=seeds)


def load_workload(path: Path) -> Workload:
    """Load the workload in a run's folder, without the files that it names.

    Raises:
        ScenarioError: holds all problems, each with its line.
    """
    document = parse_file(path)
    done = _completed(document, lambda name: path.parent / name, ())
    return load_workload_document(done, locate=None)


def is_workload_file(path: Path) -> bool:
    """Return whether the scenario in a run's folder describes a workload; False if there is none.

    Raises:
        DataError: it is damaged.
    """
    with of_run(path):
        return path.is_file() and is_workload(parse_file(path))


def load_workload_document(document: Document, *, locate: Locate | None) -> Workload:
    """Check a parsed workload to which overrides are applied.

    Args:
        document: the workload.
        locate: returns the path of a file that it names; None to not look for the files.

    Raises:
        ScenarioError: holds all problems, each with its line.
    """
    file = document.root.file
    if both := [name for name in OF_A_TRAINING if name in document.data]:
        expected = "either `workload`, or a training with algorithm, model and dataset"
        problems = [
            problem_at(document, (name,), f"{name} and workload", expected) for name in both
        ]
        raise ScenarioError(problems)
    if locate is not None:
        document = with_flower(document, locate)
    workload, errors = validate(document, Workload)
    root = SchemaNode(Workload)
    problems = [*document.problems, *explain(errors[:MOST_PROBLEMS], document, root=root)]
    if workload is not None:
        for filled in (with_tables, with_means):
            workload, unread = filled(workload, document, locate)
            problems += unread
        problems += _checked(workload, document, locate)
    if workload is not None and not problems:
        problems += [problem_at(document, *one) for one in check_node_links(workload)]
    if workload is None or problems:
        raise ScenarioError(shortened(problems, hidden=len(errors[MOST_PROBLEMS:]), file=file))
    return workload


def _checked(workload: Workload, document: Document, locate: Locate | None) -> list[Problem]:
    found = list(check_workload(workload))
    if locate is None:
        return [problem_at(document, *one) for one in found]
    found += check_program_files(workload, locate)
    found += check_flower_versions(workload, locate)
    problems = [problem_at(document, *one) for one in found]
    return [*problems, *check_availabilities(workload, document, locate)]


def _completed(document: Document, locate: Locate, overrides: Sequence[Override]) -> Document:
    """Return a document with its bases and overrides, without validation."""
    root = SchemaNode(Workload if is_workload(document) else Scenario)
    return completed(document, root, locate=locate, overrides=overrides)
