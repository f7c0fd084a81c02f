"""Files of the user's own: where a scenario names them, and whether they and their options fit."""

from __future__ import annotations

import ast
import json
import symtable
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from importlib.util import decode_source, find_spec
from itertools import product
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from testbed.algorithms.base import AlgorithmConfig
from testbed.algorithms.custom import (
    CustomAlgorithm,
    check_halves,
    config_class,
    configured,
)
from testbed.errors import Problem, ScenarioError, UserFileError
from testbed.host.apart import apart
from testbed.scenario.direction import TRACED
from testbed.scenario.document import Document, Keys, Node, problem_at
from testbed.scenario.parse import parse_value
from testbed.scenario.places import Place, one_of
from testbed.scenario.problems import explain
from testbed.scenario.scalars import dotted, on_one_line
from testbed.scenario.schema import Scenario
from testbed.scenario.synonyms import nearest
from testbed.user_code import OwnCode, UserCode

COPIES = "custom"
"""The folder of a run that has copies of them."""

_MEMBERS: Mapping[Keys, str] = {
    ("algorithm",): "custom",
    ("model",): "custom",
    ("dataset",): "custom",
    ("streams", "over_time"): "trace",
}
"""Families, and their member that is a file of the user's own."""


def own_names(document: Document) -> Iterator[tuple[Keys, str]]:
    """Every name of such a file and its path, in whichever form the document has it."""
    for path in _paths(document):
        name = document.at(path)
        if isinstance(name, str):
            yield path, name


def _paths(document: Document) -> Iterator[Keys]:
    for family, member in _MEMBERS.items():
        named = document.at((*family, "name")) == member
        yield (*family, "file") if named else (*family, member, "file")
    yield ("workers", "availability", "trace")
    classes = document.at(("workers", "classes"))
    for name in classes if isinstance(classes, dict) else ():
        for direction, what, form in product(("up", "down"), TRACED, ("", "_trace")):
            yield ("workers", "classes", name, "link", direction, f"{what}{form}", "trace")


def names_of(scenario: Scenario) -> dict[Keys, str]:
    """The files of the user's own that a scenario names, by their path in it."""
    return dict(own_names(Document(Node.of(_data(scenario)))))


def with_copies(scenario: Scenario) -> dict[str, Any]:
    """The scenario as plain data that names, in place of these files, a run's copies of them."""
    root = Node.of(_data(scenario))
    for path, name in names_of(scenario).items():
        root = root.with_value(path, f"{COPIES}/{Path(name).name}")
    data: dict[str, Any] = root.data
    return data


def _data(scenario: Scenario) -> dict[str, Any]:
    return scenario.model_dump(mode="json", by_alias=True, exclude_none=True)


def check_text(code: UserCode, document: Document, path: Keys) -> Iterator[Problem]:
    """Check that a file is Python, imports what is there and has the name, without executing it.

    Imports inside `try` and `if` may be meant to fail, and are not checked.

    Args:
        code: the file, and the name of the class or function in it.
        document: the scenario.
        path: where it has the name.
    """
    try:
        code.compiled()
        tree = code.parsed()
    except ScenarioError as error:
        yield from error.problems
        return
    for line, module in _imported(tree):
        if not _is_there(module):
            found = f"an import of {module}, which is not there"
            expected = "an installed package: no other file beside this one can be imported"
            yield Problem(str(code.path), line, code.path_in_scenario, found, expected)
    names = _defined(code.path)
    if code.name not in names and not _defines_untold(tree):
        listed = ", ".join(sorted(names)[:10]) or "nothing"
        found = f"no {code.name} in {code.path.name}, which defines {listed}"
        yield problem_at(document, path, found=found, expected="a class or function of that file")


def _imported(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """The line and the top package of every import at the top of a file."""
    for statement in tree.body:
        if isinstance(statement, ast.Import):
            yield from ((statement.lineno, one.name.split(".")[0]) for one in statement.names)
        elif isinstance(statement, ast.ImportFrom):
            module = statement.module or ""
            yield statement.lineno, "." * statement.level + module.split(".")[0]


def _is_there(module: str) -> bool:
    return not module.startswith(".") and find_spec(module) is not None


def _defines_untold(tree: ast.Module) -> bool:
    """Whether it may have names that its text does not tell."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and any(one.name == "*" for one in node.names):
            return True
        if isinstance(node, ast.Name) and node.id in ("exec", "globals"):
            return True
    return False


def _defined(file: Path) -> set[str]:
    symbols = symtable.symtable(decode_source(file.read_bytes()), str(file), "exec").get_symbols()
    return {one.get_name() for one in symbols if one.is_assigned() or one.is_imported()}


GIVEN = {"model": 2, "dataset": 0}
"""How many positional arguments the user's class or function gets."""


def apply_own_code(
    scenario: Scenario, document: Document, locate: Callable[[str], Path]
) -> tuple[Scenario, list[Problem]]:
    """See whether the user's own code takes its options.

    The file of an algorithm is executed, in a process apart, for its config class checks them.
    Those of models and data sets are only read: what they define, import and take.

    Args:
        scenario: is valid but for these options.
        document: what it was read from.
        locate: where a file of the user's own lies.

    Returns:
        The scenario with the defaults of the algorithm's options written out, and what is wrong.

    Raises:
        UserFileError, UserCodeError: the file of the algorithm failed.
    """
    problems: list[Problem] = []
    unfit: dict[str, list[Problem]] = {}
    for family, one in own_code(scenario).items():
        code = UserCode(locate(one.file), one.class_name, family)
        unfit[family] = list(check_text(code, document, (family, "class")))
        problems += unfit[family]
        if family in GIVEN:
            problems += _unknown_keywords(one, code.keywords(GIVEN[family]), document, family)
    if isinstance(scenario.algorithm, CustomAlgorithm) and not unfit["algorithm"]:
        member = scenario.algorithm
        code = UserCode(locate(member.file), member.class_name, "algorithm")
        try:
            written = apart(lambda _: _configured(member, code, document), whose=member.file)
        except UserFileError:
            raise
        except ScenarioError as error:
            return scenario, [*problems, *error.problems]
        algorithm = _filled(member, written)
        return scenario.model_copy(update={"algorithm": algorithm}), problems
    return scenario, problems


def own_code(scenario: Scenario) -> dict[str, OwnCode]:
    """The members that are the user's own, by family."""
    families = ("algorithm", "model", "dataset")
    members = {family: getattr(scenario, family) for family in families}
    return {family: one for family, one in members.items() if isinstance(one, OwnCode)}


def own_files(scenario: Scenario) -> str:
    """The names of the user's own files, for messages; empty where there are none."""
    return ", ".join(dict.fromkeys(one.file for one in own_code(scenario).values()))


def _unknown_keywords(
    member: OwnCode, known: frozenset[str] | None, document: Document, family: str
) -> list[Problem]:
    found = "an unknown key"
    problems = []
    for key in member.options if known is not None else ():
        if key not in (known or ()):
            names = sorted(known or ())
            takes = one_of(names) if names else "no options"
            expected = f"{takes}: that is what {member.class_name} in {member.file} takes"
            hint = nearest(key, names)
            problems.append(
                problem_at(document, (family, key), found=found, expected=expected, hint=hint)
            )
    return problems


def _configured(member: CustomAlgorithm, code: UserCode, document: Document) -> str:
    """The options that the member's class makes of those that are given, as JSON.

    Raises:
        ScenarioError: the file, the class, an option or a half is wrong.
    """
    kind, path = config_class(code), _place(document, "algorithm")
    try:
        config = configured(code, kind, member.options)
    except ValidationError as error:
        options = Document(document.origin(path))
        wrong = explain(error.errors(include_url=False), options, root=Place(kind))
        before = dotted(path)
        told = [replace(one, path=f"{before}.{one.path}".rstrip(".")) for one in wrong]
        raise ScenarioError(told) from None
    check_halves(config, code)
    return _written_out(member, config, code)


def _written_out(member: CustomAlgorithm, config: AlgorithmConfig, code: UserCode) -> str:
    """The options of a config, as JSON.

    Raises:
        ScenarioError: they would not be read again as they are.
    """
    doing, expected = f"writing the options of {code.name}", "fields that YAML can hold"

    def dump() -> str:
        return json.dumps(config.model_dump(mode="json", by_alias=True, exclude={"name"}))

    text = code.call(dump, doing=doing, expected=expected)
    try:
        survives = configured(code, type(config), _filled(member, text).options) == config
    except (ValidationError, ScenarioError):
        survives = False
    if not survives:
        found = f"options that are read otherwise: {on_one_line(text, 400)}"
        raise code.error(found, expected, line=code.line())
    return text


def _filled(member: CustomAlgorithm, options: str) -> CustomAlgorithm:
    """The member with the defaults of its options, out of all of them as JSON."""
    written = parse_value(options, member.class_name) or {}
    return CustomAlgorithm.model_validate({**written, **member.model_dump(by_alias=True)})


def _place(document: Document, family: str) -> Keys:
    """The path of a member's options, in whichever form it is written."""
    return document.written((family, "file"))[:-1]
