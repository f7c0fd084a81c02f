"""A scenario as plain data, with the place each value came from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from testbed.errors import Problem, ScenarioError
from testbed.scenario.nodes import Node, read_nodes
from testbed.scenario.scalars import display, dotted
from testbed.scenario.source import check_text

Keys = tuple[str | int, ...]

ASIDE = "x-"
"""Keys at the top that begin so are the user's own: a place for anchors."""


@dataclass(frozen=True)
class Origin:
    """Where a value came from.

    Attributes:
        file: the file as the user named it, or an option such as ``--set workers.count=5``.
        line: 1-based line, 0 for an option.
    """

    file: str
    line: int


@dataclass(frozen=True)
class Document:
    """Plain data and its origins.

    Attributes:
        data: dicts, tuples and scalars; Refused stands where a problem was reported already.
        origins: of each value by its path; the root's path is empty.
        problems: what was wrong with the text itself.
    """

    data: Any
    origins: Mapping[Keys, Origin]
    problems: tuple[Problem, ...] = ()

    def origin(self, path: Keys) -> Origin:
        """Where the value at ``path`` came from, or the nearest value around it."""
        while path and path not in self.origins:
            path = path[:-1]
        return self.origins[path]

    def at(self, path: Keys) -> Any:
        """The value at a path of keys and indices, or None if there is none."""
        value = self.data
        for key in path:
            if isinstance(value, tuple) and isinstance(key, int) and key < len(value):
                value = value[key]
            else:
                value = value.get(key) if isinstance(value, dict) else None
        return value

    def replace(self, path: Keys, value: Any, origin: Origin | None = None) -> Document:
        """The document with another value at a path of keys.

        Mappings on the way are made where there are none yet.

        Args:
            path: keys of mappings only.
            value: plain data.
            origin: where the value and the mappings made for it come from; None keeps all origins.
        """
        data = value
        for depth in reversed(range(len(path))):
            data = {**(self.at(path[:depth]) or {}), path[depth]: data}
        if origin is None:
            return Document(data, self.origins, self.problems)
        origins = {k: v for k, v in self.origins.items() if k[: len(path)] != path}
        for depth in range(1, len(path) + 1):
            origins.setdefault(path[:depth], origin)
        return Document(data, origins, self.problems)


def problem_at(
    document: Document, path: Keys, *, found: str = "", expected: str = "", hint: str = ""
) -> Problem:
    """A problem with what stands at a path, at the line that it came from."""
    origin = document.origin(path)
    return Problem(origin.file, origin.line, dotted(path), found, expected, hint)


def options_path(document: Document, path: Keys) -> Keys:
    """The path of a member's options, in whichever form it was written."""
    value = document.at(path)
    return (*path, *value) if isinstance(value, dict) and "name" not in value else path


def parse_document(text: str, file: str) -> Document:
    """Read YAML text; what stands aside, under a key such as ``x-links``, is left out.

    Raises:
        ScenarioError: no YAML can be made of it, or it is not one mapping.
    """
    check_text(text, file)
    root, problems = read_nodes(text, file)
    if root is None or not isinstance(root.value, dict):
        found = "an empty file" if root is None else display(_plain(root))
        expected = "a mapping that begins with `name: ...`"
        problem = Problem(file, root.line if root else 0, "", found, expected)
        raise ScenarioError([*problems, problem])
    for key in [key for key in root.value if key.startswith(ASIDE)]:
        del root.value[key]
    lines = {path: Origin(file, line) for path, line in _lines(root, (), root.line)}
    return Document(_plain(root), lines, tuple(problems))


def parse_value(text: str, option: str) -> tuple[Any, tuple[Problem, ...]]:
    """Read one YAML value given on the command line by ``option``.

    Raises:
        ScenarioError: no YAML can be made of it.
    """
    try:
        check_text(text, option)
        root, problems = read_nodes(text, option)
    except ScenarioError as error:
        raise ScenarioError([_without_line(problem) for problem in error.problems]) from None
    value = None if root is None else _plain(root)
    return value, tuple(_without_line(problem) for problem in problems)


def _without_line(problem: Problem) -> Problem:
    return Problem(problem.file, 0, problem.path, problem.found, problem.expected, problem.hint)


def _plain(node: Node) -> Any:
    if isinstance(node.value, dict):
        return {key: _plain(entry.node) for key, entry in node.value.items()}
    if isinstance(node.value, list):
        return tuple(_plain(item) for item in node.value)
    return node.value


def _lines(node: Node, path: Keys, line: int) -> Iterator[tuple[Keys, int]]:
    yield path, line
    if isinstance(node.value, dict):
        for key, entry in node.value.items():
            yield from _lines(entry.node, (*path, key), entry.line)
    if isinstance(node.value, list):
        for index, item in enumerate(node.value):
            yield from _lines(item, (*path, index), item.line)
