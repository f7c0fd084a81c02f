"""Replaces ``flower`` in a workload by the programs that it stands for, after checking it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from testbed.errors import InvalidValue, ScenarioError
from testbed.scenario.document import Document, Finding, Keys, Node, problem_at
from testbed.scenario.flower import (
    FLOWER,
    OF_ALL,
    OF_SUPERNODES,
    ROUNDS,
    RUN,
    SEED_IN_BRACES,
    SUPERLINK,
    SUPERNODE,
    Flower,
    programs,
)
from testbed.scenario.flower_app import App, Environment
from testbed.scenario.flower_imports import imports_of
from testbed.scenario.load import shortened, validate
from testbed.scenario.parse import parse_file
from testbed.scenario.problems import explain
from testbed.scenario.scalars import display
from testbed.scenario.schema_node import SchemaNode
from testbed.scenario.source import Locate

ROOT: Keys = ("workload", FLOWER)


class _Programs(BaseModel):
    model_config = ConfigDict(extra="ignore")
    flower: Flower


class _Document(BaseModel):
    """Only the part of a workload that is replaced."""

    model_config = ConfigDict(extra="ignore")
    workload: _Programs


def with_flower(document: Document, locate: Locate) -> Document:
    """Return a workload in which plain programs stand in place of ``flower``, if it has that.

    Args:
        document: the workload.
        locate: returns the path of a file that it names.

    Raises:
        ScenarioError: the app or its environment is not usable; holds all problems, with lines.
    """
    written = document.at(ROOT[:1])
    if not isinstance(written, dict) or FLOWER not in written:
        return document
    valid, errors = validate(document, _Document)
    problems = [*document.problems, *explain(errors, document, root=SchemaNode(_Document))]
    if valid is not None and not problems:
        flower = valid.workload.flower
        found = _Found(flower, locate)
        problems = [problem_at(document, *one) for one in found.check(document)]
        if not problems:
            return _replaced(document, flower, found)
    raise ScenarioError(shortened(problems, hidden=0, file=document.root.file))


def app_folder(path: Path) -> str:
    """Return the folder of the Flower app that a scenario file names, as written; or nothing.

    Raises:
        ScenarioError: the file cannot be read.
    """
    found = parse_file(path).at((*ROOT, "app"))
    return found if isinstance(found, str) else ""


class _Found:
    """The app and the environment that a section names."""

    app: App
    environment: Environment

    def __init__(self, flower: Flower, locate: Locate) -> None:
        self._flower = flower
        self._locate = locate

    def check(self, document: Document) -> Iterator[Finding]:
        """Yield what is wrong with them."""
        taken = [name for name in (SUPERLINK, SUPERNODE, RUN) if document.at(("workload", name))]
        for name in taken:
            yield ("workload", name), name, "another name: `flower` has a program of that name"
        try:
            self.app = App.read(self._locate(self._flower.app))
        except InvalidValue as error:
            yield (*ROOT, "app"), f"{self._flower.app}: {error.found}", error.expected
            return
        yield from self._check_config()
        try:
            named = self._flower.python
            self.environment = Environment.of(None if named is None else self._locate(named))
            self.environment.flwr()
        except InvalidValue as error:
            yield (*ROOT, "python"), error.found, error.expected
            return
        if lacking := list(self.environment.lacks(self.app)):
            cure = f"{self.environment.python} -m pip install {self.app.folder}"
            for requirement, instead in lacking:
                found = f"an app that requires {requirement}, {instead}"
                yield (*ROOT, "app"), found, f"an environment that has it: {cure}"
        elif wrong := self.environment.build(self.app):
            yield (*ROOT, "app"), self._flower.app, f"an app that `flwr build` accepts: {wrong}"

    def _check_config(self) -> Iterator[Finding]:
        known = self.app.config
        if self._flower.rounds is not None and ROUNDS not in known:
            expected = f"a key of the app in `config`: {', '.join(known) or 'it has none'}"
            yield (*ROOT, "rounds"), f"an app without {ROUNDS}", expected
        if self._flower.rounds is not None and ROUNDS in self._flower.config:
            yield (*ROOT, "rounds"), f"rounds and {ROUNDS}", "one of them"
        for key, value in self._flower.config.items():
            path = (*ROOT, "config", key)
            if key not in known:
                expected = f"a key of [tool.flwr.app.config]: {', '.join(known) or 'it has none'}"
                yield path, key, expected
            elif not _fits(value, known[key]):
                expected = f"a value like the app's own, {display(known[key])}"
                yield path, display(value), expected


def _fits(value: object, own: object) -> bool:
    """Whether a value has the type of the app's own; whole numbers stand for others, too."""
    value = 0 if value == SEED_IN_BRACES else value
    return type(value) is type(own) or (isinstance(own, float) and type(value) is int)


def _replaced(document: Document, flower: Flower, found: _Found) -> Document:
    """Return the document with programs; fields keep their lines, all else has that of `flower`."""
    workload = document.origin(ROOT[:1])
    section = workload.value[FLOWER]
    made = programs(
        flower,
        app=found.app.folder,
        version=found.environment.flwr(),
        imports=imports_of(found.app),
    )
    nodes = {}
    for name, fields in made.items():
        own: tuple[str, ...] = OF_ALL
        kept = {}
        if name == SUPERNODE:
            own = (*OF_ALL, *OF_SUPERNODES, "classes")
        elif name == SUPERLINK and (superlink := section.inside("superlink")):
            kept = dict(superlink.value or {})
        kept |= {key: section.value[key] for key in own if key in section.value}
        created = Node.of(fields, section.file, section.line)
        nodes[name] = replace(created, value={**created.value, **kept})
    others = {name: node for name, node in workload.value.items() if name != FLOWER}
    programs_of = replace(workload, value={**nodes, **others})
    root = replace(document.root, value={**document.root.value, "workload": programs_of})
    return replace(document, root=root)
