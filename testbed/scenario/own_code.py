"""The user's own files: references in a scenario, and checks of the files and their options."""

from __future__ import annotations

import ast
import json
import os
import symtable
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from importlib.util import decode_source, find_spec
from itertools import product
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from testbed.algorithms.base import AlgorithmConfig
from testbed.algorithms.custom import CustomAlgorithm, check_halves, config_class, configured
from testbed.algorithms.selection.custom import CustomSelection, try_selection
from testbed.datasets.folders import FolderDataset
from testbed.errors import Problem, ScenarioError, UserFileError
from testbed.host.isolation import run_isolated
from testbed.models.metrics.custom import CustomMetric, try_metric
from testbed.scenario.direction import TRACED
from testbed.scenario.document import (
    FOLDER,
    METRICS,
    PARTITION,
    SELECTION,
    Document,
    Finding,
    Keys,
    Node,
    problem_at,
)
from testbed.scenario.parse import parse_value
from testbed.scenario.problems import explain
from testbed.scenario.profiles import is_file
from testbed.scenario.scalars import display, dotted, on_one_line
from testbed.scenario.schema import Scenario
from testbed.scenario.schema_node import SchemaNode, one_of
from testbed.scenario.source import Locate
from testbed.scenario.synonyms import nearest
from testbed.scenario.workload import Workload
from testbed.values.family import full_form
from testbed.values.fields import replaced
from testbed.values.user_code import OwnCode, UserCode

COPIES = "custom"
"""The folder in a run folder for copies of the user's own files."""

PYTHON = {"custom": "Python"}
OWN: Mapping[Keys, tuple[str, Mapping[str, str]]] = {
    ("algorithm",): ("algorithm", PYTHON),
    SELECTION: ("selection", PYTHON),
    ("model",): ("model", PYTHON),
    ("dataset",): ("dataset", {**PYTHON, "text": "text"}),
    PARTITION: ("partition", {**PYTHON, "by_user": "JSON", "lists": "JSON"}),
    ("streams", "over_time"): ("stream", {"trace": "CSV"}),
}
"""Families, and the kind of file that some of their members have."""


def own_members(document: Document) -> Iterator[tuple[Keys, str, str]]:
    """Yield the path of the file of each member that has one, its family, and the kind of file."""
    metrics = document.at(METRICS)
    listed = range(len(metrics)) if isinstance(metrics, tuple | list) else ()
    families = {**OWN, **{(*METRICS, place): ("metric", PYTHON) for place in listed}}
    for path, (family, kinds) in families.items():
        member = full_form(document.at(document.written(path)))
        name = member.get("name") if isinstance(member, dict) else None
        if isinstance(name, str) and name in kinds:
            yield document.written((*path, "file")), family, kinds[name]


def check_files(document: Document, locate: Locate) -> Iterator[Finding]:
    """Check that the user's own files exist; ``locate`` returns the path of a file by its name."""
    for path, family, kind in own_members(document):
        file = document.at(path)
        if kind == "CSV":
            continue  # read, and checked, with the other recordings
        # Path.is_file would raise for a name that is too long.
        if isinstance(file, str) and not os.path.isfile(locate(file)):  # noqa: PTH113
            expected = f"the {family}'s {kind} file, relative to the folder of the scenario"
            yield path, f"no file {display(file)}", expected


def own_names(document: Document) -> Iterator[tuple[Keys, str]]:
    """Yield path and name of each of the user's own files in a document."""
    members = (path for path, _, _ in own_members(document))
    for path in (*members, *map(document.written, _recordings(document))):
        name = document.at(path)
        if isinstance(name, str):
            yield path, name


def relative_names(document: Document) -> Iterator[tuple[Keys, str]]:
    """Yield path and name of all that is relative to a document: own files, the data's folder."""
    yield from own_names(document)
    member = full_form(document.at(FOLDER[:1]))
    own = isinstance(member, dict) and member.get("name") == "custom"  # the option is its own
    path = document.written(FOLDER)
    if not own and isinstance(folder := document.at(path), str):
        yield path, folder


def with_folder(scenario: Scenario, locate: Locate) -> Scenario:
    """Return the scenario with the absolute path of its data's folder, which is not copied."""
    dataset = scenario.dataset
    if not isinstance(dataset, FolderDataset):
        return scenario
    found = dataset.model_copy(update={"folder": str(locate(dataset.folder).absolute())})
    return scenario.model_copy(update={"dataset": found})


def _recordings(document: Document) -> Iterator[Keys]:
    """Yield the possible paths of recordings, tables and device profiles."""
    yield ("workers", "availability", "trace")
    yield from _of_programs(document)
    classes = document.at(("workers", "classes"))
    for name in classes if isinstance(classes, dict) else ():
        own: Keys = ("workers", "classes", name)
        yield (*own, "speed", "table", "file")
        profile = document.at((*own, "speed", "profile"))
        if isinstance(profile, str) and is_file(profile):
            yield (*own, "speed", "profile")
        yield from _of_link(own)


def _of_programs(document: Document) -> Iterator[Keys]:
    """Yield the possible paths of recordings of a workload's programs."""
    programs = document.at(("workload",))
    for name in programs if isinstance(programs, dict) else ():
        own: Keys = ("workload", name)
        classes = document.at((*own, "classes"))
        kinds = classes if isinstance(classes, dict) else ()
        for path in (own, *((*own, "classes", kind) for kind in kinds)):
            yield (*path, "availability", "trace")
            yield from _of_link(path)


def _of_link(own: Keys) -> Iterator[Keys]:
    """Yield the possible paths of recordings and tables of a link."""
    for direction, what in product(("up", "down"), TRACED):
        link: Keys = (*own, "link", direction)
        for form in ("", "_trace"):
            yield (*link, f"{what}{form}", "trace")
        yield (*link, what, "table", "file")
        yield (*link, f"{what}_table", "file")


def names_of(scenario: Scenario | Workload) -> dict[Keys, str]:
    """Return the names of the user's own files, by their path in the scenario.

    Those of a workload are recordings and tables: its programs have ``files`` of any kind.
    """
    return dict(own_names(Document(Node.of(_data(scenario)))))


def with_copies(scenario: Scenario) -> dict[str, Any]:
    """Return the scenario as plain data that refers to a run's copies of the user's own files."""
    root = Node.of(_data(scenario))
    for path, name in names_of(scenario).items():
        root = root.with_value(path, f"{COPIES}/{Path(name).name}")
    data: dict[str, Any] = root.data
    return data


def _data(scenario: Scenario | Workload) -> dict[str, Any]:
    return scenario.model_dump(mode="json", by_alias=True, exclude_none=True)


def check_text(code: UserCode, document: Document, path: Keys) -> Iterator[Problem]:
    """Check syntax, imports and the name in a file, without executing it.

    Imports inside `try` and `if` may fail intentionally, and are not checked.

    Args:
        code: the file, and the name of the class or function in it.
        document: the scenario.
        path: path of the name.
    """
    try:
        code.compiled()
        tree = code.parsed()
    except ScenarioError as error:
        yield from error.problems
        return
    for line, module in _imported(tree):
        if not _is_installed(module):
            found = f"an import of {module}, which is not installed"
            expected = "an installed package: the file cannot import other files next to it"
            yield Problem(str(code.path), line, code.path_in_scenario, found, expected)
    names, imported = _names(code.path)
    if code.name not in names | imported and not _defines_dynamically(tree):
        listed = ", ".join(sorted(names)[:10]) or "nothing"
        found = f"no {code.name} in {code.path.name}, which defines {listed}"
        hint = nearest(code.name, sorted(names | imported))
        yield problem_at(document, path, found, "a class or function of that file", hint)


def _imported(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield line and top package of every top-level import."""
    for statement in tree.body:
        if isinstance(statement, ast.Import):
            yield from ((statement.lineno, one.name.split(".")[0]) for one in statement.names)
        elif isinstance(statement, ast.ImportFrom):
            module = statement.module or ""
            yield statement.lineno, "." * statement.level + module.split(".")[0]


def _is_installed(module: str) -> bool:
    return not module.startswith(".") and find_spec(module) is not None


def _defines_dynamically(tree: ast.Module) -> bool:
    """Whether it may define names that cannot be found in its text."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and any(one.name == "*" for one in node.names):
            return True
        if isinstance(node, ast.Name) and node.id in ("exec", "globals"):
            return True
    return False


def _names(file: Path) -> tuple[set[str], set[str]]:
    """Return the top-level names that a file defines, and those that it only imports."""
    symbols = symtable.symtable(decode_source(file.read_bytes()), str(file), "exec").get_symbols()
    defined = {one.get_name() for one in symbols if one.is_assigned()}
    return defined, {one.get_name() for one in symbols if one.is_imported()} - defined


ALGORITHM: Keys = ("algorithm",)
GIVEN: Mapping[Keys, int] = {("model",): 2, PARTITION: 3}
"""Number of positional arguments passed to the user's class or function; else none."""


def apply_own_code(
    scenario: Scenario, document: Document, locate: Locate
) -> tuple[Scenario, list[Problem]]:
    """Check that the user's own code accepts its options.

    The files of algorithms, selections and metrics are executed in a separate process: a config
    class checks its options, and a metric says which values are better. Those of models and data
    sets are only parsed: definitions, imports and parameters.

    Args:
        scenario: is otherwise valid.
        document: the parsed document.
        locate: returns the path of a user's own file.

    Returns:
        The scenario with what the files say of algorithm and metrics, and the problems.

    Raises:
        UserFileError, UserCodeError: the file of the algorithm or of a metric failed.
    """
    problems: list[Problem] = []
    unfit: dict[Keys, list[Problem]] = {}
    for path, one in own_code(scenario).items():
        code = UserCode(locate(one.file), one.class_name, dotted(path))
        unfit[path] = list(check_text(code, document, (*path, "class")))
        if path != ALGORITHM:
            given = GIVEN.get(path, 0)
            unfit[path] += _unknown_keywords(one, code.keywords(given), document, path)
        problems += unfit[path]
    if not problems:
        scenario = _with_metrics(scenario, locate, problems)
        select = getattr(scenario.algorithm, "select", None)
        if isinstance(select, CustomSelection):
            code = UserCode(locate(select.file), select.class_name, dotted(SELECTION))
            _isolated(partial(try_selection, select, code), select.file, problems)
    member = scenario.algorithm
    if isinstance(member, CustomAlgorithm) and not unfit[ALGORITHM]:
        code = UserCode(locate(member.file), member.class_name, dotted(ALGORITHM))
        written = _isolated(partial(_configured, member, code, document), member.file, problems)
        if written is not None:
            scenario = scenario.model_copy(update={"algorithm": _filled(member, written)})
    return scenario, problems


def _isolated(work: Callable[[], Any], file: str, problems: list[Problem]) -> Any:
    """Run a user's code in a process of its own; add what is wrong with it, and return None.

    Raises:
        UserFileError, UserCodeError: it failed.
    """
    try:
        return run_isolated(lambda _: work(), label=file)
    except UserFileError:
        raise
    except ScenarioError as error:
        problems += error.problems
        return None


def own_code(scenario: Scenario) -> dict[Keys, OwnCode]:
    """Return the members that are the user's own, by their path."""
    members: dict[Keys, object] = {
        ALGORITHM: scenario.algorithm,
        ("model",): scenario.model,
        ("dataset",): scenario.dataset,
        PARTITION: scenario.dataset.partition,
    }
    members[SELECTION] = getattr(scenario.algorithm, "select", None)
    members |= {(*METRICS, place): one for place, one in enumerate(scenario.evaluate.metrics)}
    return {path: one for path, one in members.items() if isinstance(one, OwnCode)}


def _with_metrics(scenario: Scenario, locate: Locate, problems: list[Problem]) -> Scenario:
    """Try the user's metrics on random outputs; fill in which of their values are better."""
    classes = scenario.dataset.images and scenario.dataset.images[1]
    metrics = list(scenario.evaluate.metrics)
    for place, one in enumerate(metrics):
        if isinstance(one, CustomMetric):
            code = UserCode(locate(one.file), one.class_name, dotted((*METRICS, place)))
            better = _isolated(partial(try_metric, one, code, classes), one.file, problems)
            metrics[place] = one.model_copy(update={"better": one.better or better})
    return replaced(scenario, ("evaluate", "metrics"), tuple(metrics))


def own_files(scenario: Scenario) -> str:
    """Return the names of the user's own files, for messages; empty if there are none."""
    return ", ".join(dict.fromkeys(one.file for one in own_code(scenario).values()))


def _unknown_keywords(
    member: OwnCode, known: frozenset[str] | None, document: Document, path: Keys
) -> list[Problem]:
    found = "an unknown key"
    problems = []
    for key in member.options if known is not None else ():
        if key not in (known or ()):
            names = sorted(known or ())
            accepted = one_of(names) if names else "no options"
            expected = f"{accepted}, as {member.class_name} in {member.file} accepts"
            hint = nearest(key, names)
            problems.append(
                problem_at(document, (*path, key), found=found, expected=expected, hint=hint)
            )
    return problems


def _configured(member: CustomAlgorithm, code: UserCode, document: Document) -> str:
    """Return all options, as JSON, that the member's class creates from the given options.

    Raises:
        ScenarioError: the file, the class, an option or a half is invalid.
    """
    kind, path = config_class(code), document.written((*ALGORITHM, "file"))[:-1]
    try:
        config = configured(code, kind, member.options)
    except ValidationError as error:
        options = Document(document.origin(path))
        wrong = explain(error.errors(include_url=False), options, root=SchemaNode(kind))
        before = dotted(path)
        problems = [replace(one, path=f"{before}.{one.path}".rstrip(".")) for one in wrong]
        raise ScenarioError(problems) from None
    check_halves(config, code)
    return _written_out(member, config, code)


def _written_out(member: CustomAlgorithm, config: AlgorithmConfig, code: UserCode) -> str:
    """Return the options of a config as JSON.

    Raises:
        ScenarioError: they do not survive writing and reading.
    """
    doing, expected = f"writing the options of {code.name}", "fields that YAML can represent"

    def dump() -> str:
        return json.dumps(config.model_dump(mode="json", by_alias=True, exclude={"name"}))

    text = code.call(dump, doing=doing, expected=expected)
    try:
        survives = configured(code, type(config), _filled(member, text).options) == config
    except (ValidationError, ScenarioError):
        survives = False
    if not survives:
        found = f"options that change when written and read back: {on_one_line(text, 400)}"
        raise code.error(found, expected)
    return text


def _filled(member: CustomAlgorithm, options: str) -> CustomAlgorithm:
    """Return the member with the defaults of its options, from all options as JSON."""
    written = parse_value(options, member.class_name) or {}
    return CustomAlgorithm.model_validate({**written, **member.model_dump(by_alias=True)})
