"""Options of the user's own code: checked before anything is made, by the code itself."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

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
from testbed.scenario.document import Document, Keys, problem_at
from testbed.scenario.own_text import check_text
from testbed.scenario.parse import parse_value
from testbed.scenario.places import Place, one_of
from testbed.scenario.problems import explain
from testbed.scenario.scalars import dotted, on_one_line
from testbed.scenario.schema import Scenario
from testbed.scenario.synonyms import nearest
from testbed.user_code import OwnCode, UserCode

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
