"""A user-defined selection: a class in a Python file.

    algorithm: {fedavg: {select: {custom: {file: ./mine.py, class: Fastest, slack: 2}}}}

The class is a subclass of SelectionConfig; every other key is one of its fields.

    class Fastest(SelectionConfig):
        slack: int = 0

        def choose(self, candidates, count, *, history, state, rng):
            return sorted(candidates, key=lambda k: history.durations.get(k, 0.0))[:count]
"""

from __future__ import annotations

from collections.abc import Sequence
from inspect import isabstract
from pathlib import Path

from numpy.random import Generator
from pydantic import ValidationError

from testbed.algorithms.selection.base import History, SelectionConfig, SelectionState
from testbed.errors import AlgorithmError
from testbed.values.user_code import OwnCode, UserCode

EXPECTED = "a subclass of testbed.algorithms.selection.SelectionConfig with a method choose()"
HINT = "Return `count` of the candidates, or fewer, each once."
WORKERS = 4


class CustomSelection(OwnCode):
    """A user-defined selection; every other key is a field of the user's class."""

    def load(self, folder: Path) -> SelectionConfig:
        """Load the user's selection, with the options, from the run's ``custom`` folder.

        Raises:
            ScenarioError: the file, the class or an option is wrong.
        """
        return own_selection(self, self.copied(folder, "algorithm.select"))


def own_selection(config: CustomSelection, code: UserCode) -> SelectionConfig:
    """Create the user's object.

    Raises:
        ScenarioError: the class or an option is wrong.
        UserFileError: the file failed.
    """
    kind = code.load(EXPECTED)
    if not (isinstance(kind, type) and issubclass(kind, SelectionConfig)) or isabstract(kind):
        raise code.error(f"{code.name}, which is none", EXPECTED)
    try:
        return kind.model_validate(config.options)
    except ValidationError as error:
        raise code.refuses(error) from None


def flaw(chosen: object, candidates: Sequence[int], count: int) -> str:
    """Return why ``chosen`` is no choice of these candidates; an empty string if it is one."""
    if not isinstance(chosen, Sequence) or not all(type(one) is int for one in chosen):
        return f"chose {chosen!r}, expected a list of numbers of workers"
    if not chosen:
        return f"chose none, expected {count} of the {len(candidates)} candidates"
    if strange := sorted(set(chosen) - set(candidates)):
        return f"chose w{strange[0]}, which is not a candidate: it has left, or is training"
    if len(set(chosen)) < len(chosen) or len(chosen) > count:
        return f"chose {list(chosen)}, expected at most {count} workers, each once"
    return ""


def try_selection(config: CustomSelection, code: UserCode) -> None:
    """Let the user's selection choose twice among four workers that nothing is known of.

    Raises:
        ScenarioError: the class or an option is wrong, or it chooses someone else.
        UserFileError: it failed.
    """
    import numpy as np

    selection, history = own_selection(config, code), History()
    state: SelectionState = {}
    rng: Generator = np.random.default_rng(0)
    for count in (2, WORKERS):
        history.begin(range(WORKERS))

        def chosen(count: int = count) -> Sequence[int]:
            candidates = list(range(WORKERS))
            return selection.choose(candidates, count, history=history, state=state, rng=rng)

        doing = f"{code.name}.choose(), of {WORKERS} workers without a history,"
        found = flaw(code.call(chosen, doing=doing, expected=EXPECTED), range(WORKERS), count)
        if found:
            expected = f"{count} of the candidates, or fewer, each once"
            raise code.error(f"{doing} {found.split(', expected')[0]}", expected)


def chosen(
    selection: SelectionConfig | CustomSelection,
    candidates: Sequence[int],
    count: int,
    history: History,
    state: SelectionState,
    rng: Generator,
) -> Sequence[int]:
    """Return the choice of any selection.

    Raises:
        AlgorithmError: a user's own made an invalid choice.
    """
    assert isinstance(selection, SelectionConfig), "the run has loaded the user's own"
    found = selection.choose(candidates, count, history=history, state=state, rng=rng)
    if what := flaw(found, candidates, count):
        raise AlgorithmError(f"{_location(selection)}: {what}.", hint=HINT)
    return found


def _location(selection: SelectionConfig) -> str:
    """Return file and line of its method ``choose``."""
    code = type(selection).choose.__code__
    return f"{Path(code.co_filename).name}:{code.co_firstlineno}: {type(selection).__name__}"
