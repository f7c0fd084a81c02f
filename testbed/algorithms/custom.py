"""A user-defined algorithm: a config and two halves in a Python file, like a built-in one.

    algorithm: {custom: {file: ./mine.py, class: Mine, learning_rate: 0.05}}

The class is a subclass of AlgorithmConfig; every other key is one of its fields.

    class Mine(AlgorithmConfig):
        learning_rate: LearningRate = 0.1

        def halves(self):
            return Worker, Server

base.py defines the contract; `testbed check mine.py` checks the file against it.
"""

from __future__ import annotations

from abc import ABCMeta
from collections.abc import Mapping
from dataclasses import fields
from inspect import isabstract
from pathlib import Path
from typing import Any, ClassVar, get_args

from pydantic import ValidationError

from testbed.algorithms.base import AlgorithmConfig, Orders, ServerHalf, WorkerHalf
from testbed.algorithms.frame.own_payloads import check_payloads
from testbed.values.user_code import OwnCode, UserCode, raised_by_signal

RENAMED = {"demand": "next_batch_size", "taken": "on_samples"}
"""Methods of a worker half that testbed calls by other names now."""


class CustomAlgorithm(OwnCode):
    """A user-defined algorithm; every other key is a field of the user's config class."""

    # What it can do is known once that class is loaded.
    THINKS: ClassVar[bool] = True
    PACKS: ClassVar[bool] = True
    TAKES_STREAMS: ClassVar[bool] = True
    AVERAGES_BUFFERS: ClassVar[bool] = True
    WORKERS_EVALUATE: ClassVar[bool] = True

    def load(self, folder: Path) -> AlgorithmConfig:
        """Load the user's config, with the options, from the run's ``custom`` folder.

        Raises:
            ScenarioError: the file, the class, an option or a half is wrong.
        """
        return open_config(self.copied(folder, "algorithm"), self.options)


def open_config(code: UserCode, options: Mapping[str, Any]) -> AlgorithmConfig:
    """Load the user's config with these options.

    Raises:
        ScenarioError: the file, the class, an option or a half is wrong.
    """
    kind = config_class(code)
    try:
        config = configured(code, kind, options)
    except ValidationError as error:
        raise code.refuses(error) from None
    check_halves(config, code)
    return config


def config_class(code: UserCode) -> type[AlgorithmConfig]:
    """Execute the user's file and return the config class in it.

    Raises:
        ScenarioError: there is no class of that name, or it violates the contract.
    """
    expected = "a subclass of testbed.algorithms.base.AlgorithmConfig"
    kind = code.load(expected)
    if not (isinstance(kind, type) and issubclass(kind, AlgorithmConfig)):
        raise code.error(f"{code.name}, a {type(kind).__name__}", expected)
    _check_complete(kind, code)
    check_payloads(kind, code)
    known = {field.name for field in fields(Orders)}
    if unknown := set(kind.OBEYS) - known:
        found = f"{', '.join(sorted(unknown))} in OBEYS"
        raise code.error(found, f"some of {', '.join(sorted(known))}")
    return kind


def configured(
    code: UserCode, kind: type[AlgorithmConfig], options: Mapping[str, Any]
) -> AlgorithmConfig:
    """Validate the options with the user's config class.

    A field ``name``, as built-in algorithms have, is filled in: users do not set it.

    Raises:
        ValidationError: an option does not fit the class.
        ScenarioError: the class itself raised an error.
    """
    name = kind.model_fields.get("name")
    named = {} if name is None else {"name": next(iter(get_args(name.annotation)), "custom")}
    try:
        return kind.model_validate(named | dict(options))
    except ValidationError:
        raise
    except BaseException as error:
        if raised_by_signal(error):
            raise
        raise code.raised(error, doing=code.name, expected="valid options") from error


def check_halves(config: AlgorithmConfig, code: UserCode) -> None:
    """Refuse a config whose ``halves()`` is not a pair of complete halves.

    Raises:
        ScenarioError: a half is missing, of another kind, or lacks a method, or has an old one.
    """
    doing = f"{code.name}.halves()"
    expected = "(a subclass of WorkerHalf, a subclass of ServerHalf)"
    halves = code.call(config.halves, doing=doing, expected=expected)
    line = type(config).halves.__code__.co_firstlineno
    if not isinstance(halves, tuple) or len(halves) != 2:
        raise code.error(f"{halves!r} from {doing}", expected, line=line)
    for half, kind in zip(halves, (WorkerHalf, ServerHalf), strict=True):
        if not (isinstance(half, type) and issubclass(half, kind)):
            raise code.error(f"{half!r} from {doing}", expected, line=line)
        own = UserCode(code.path, half.__name__, code.path_in_scenario)
        _check_complete(half, own)
        for old, new in RENAMED.items():
            if hasattr(half, old):
                found = f"{half.__name__}.{old}(), which is never called"
                raise own.error(found, f"its new name, {new}()")


def _check_complete(kind: ABCMeta, code: UserCode) -> None:
    if isabstract(kind):
        lacking = ", ".join(f"{name}()" for name in sorted(kind.__abstractmethods__))
        raise code.error(f"{kind.__name__} without {lacking}", "all methods")
