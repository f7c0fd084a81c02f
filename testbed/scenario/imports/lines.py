"""Values of another tool's YAML document, with their lines."""

from __future__ import annotations

from typing import Any

from testbed.errors import Problem, ScenarioError
from testbed.scenario.document import Document, Keys
from testbed.scenario.scalars import display, dotted


def line_of(document: Document, path: Keys) -> int:
    """Return the line of the value at a path, or of the nearest around it."""
    node = document.root
    for key in path:
        inside = node.inside(key)
        if inside is None:
            break
        node = inside
    return node.line


def mapping_at(document: Document, path: Keys) -> dict[str, Any]:
    """Return the mapping at a path; an empty one if there is nothing.

    Raises:
        ScenarioError: there is something else.
    """
    value = document.at(path)
    if value is None or isinstance(value, dict):
        return value or {}
    raise _refusal(document, path, value, "a mapping, like `key: value`")


def list_at(document: Document, path: Keys) -> tuple[Any, ...]:
    """Return the list at a path; an empty one if there is nothing.

    Raises:
        ScenarioError: there is something else.
    """
    value = document.at(path)
    if value is None or isinstance(value, tuple):
        return value or ()
    raise _refusal(document, path, value, "a list")


def _refusal(document: Document, path: Keys, value: Any, expected: str) -> ScenarioError:
    line = line_of(document, path)
    return ScenarioError(
        [Problem(document.root.file, line, dotted(path), display(value), expected)]
    )
