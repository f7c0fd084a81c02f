"""Gives a problem that showed only when the data were there the line of the file it came from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from testbed.errors import UNPLACED, Problem, ScenarioError
from testbed.scenario.document import Document, Keys
from testbed.scenario.load import read_document
from testbed.scenario.override import Override


@contextmanager
def placed(file: Path | str, overrides: Sequence[Override] = ()) -> Iterator[None]:
    """Name the file and the line in errors inside that know no more than a value's path.

    Args:
        file: of the scenario that is at work inside, or its name if it comes with testbed.
        overrides: values that replaced the file's.

    Raises:
        ScenarioError: the one that was raised inside, with its places; as it was if the file cannot
            be read again.
    """
    try:
        yield
    except ScenarioError as error:
        if all(problem.file != UNPLACED for problem in error.problems):
            raise
        try:
            document = read_document(Path(file), overrides)
        except ScenarioError:  # the file has gone, or been changed, since
            raise error from None
        raise type(error)([place(one, document) for one in error.problems]) from None


def place(problem: Problem, document: Document) -> Problem:
    """The problem at the line of its value, or of what is around it if the value is a default."""
    if problem.file != UNPLACED:
        return problem
    origin = document.origin(_as_written(problem.path, document))
    return replace(problem, file=origin.file, line=origin.line)


def _as_written(path: str, document: Document) -> Keys:
    """The keys on a dotted path; a member in the form ``{name: options}`` has one more."""
    keys: Keys = ()
    for part in path.split("."):
        around = document.at(keys)
        if isinstance(around, tuple):
            keys = (*keys, int(part))
            continue
        if isinstance(around, dict) and len(around) == 1 and part not in around:
            ((name, options),) = around.items()
            keys = (*keys, name) if isinstance(options, dict) and part in options else keys
        keys = (*keys, part)
    return keys
