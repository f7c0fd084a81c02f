"""A scenario as plain data with the file and line of each value."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from testbed.errors import Problem
from testbed.scenario.scalars import dotted
from testbed.values.family import full_form

Keys = tuple[str | int, ...]
METRICS: Keys = ("evaluate", "metrics")
SELECTION: Keys = ("algorithm", "select")
PARTITION: Keys = ("dataset", "partition")
FOLDER: Keys = ("dataset", "folder")

Finding = tuple[Keys, str, str] | tuple[Keys, str, str, str]
"""A path, what was found there, what was expected, and an optional hint."""


class Refused:
    """Placeholder for a refused value, which no field accepts."""

    def __str__(self) -> str:
        return "a value that was refused"


@dataclass(frozen=True, slots=True)
class Node:
    """A value and its origin.

    Attributes:
        value: a scalar, a dict of nodes, a tuple of nodes, or Refused.
        file: the file as the user named it, or an option such as ``--set workers.count=5``.
        line: 1-based line, of its key if it has one; 0 for an option.
    """

    value: Any
    file: str = ""
    line: int = 0

    @classmethod
    def of(cls, data: Any, file: str = "", line: int = 0) -> Node:
        """Create nodes from plain data, with the same origin."""
        if isinstance(data, dict):
            data = {key: cls.of(value, file, line) for key, value in data.items()}
        elif isinstance(data, tuple | list):
            data = tuple(cls.of(value, file, line) for value in data)
        return cls(data, file, line)

    @property
    def data(self) -> Any:
        """The value as plain dicts, tuples and scalars."""
        if isinstance(self.value, dict):
            return {key: node.data for key, node in self.value.items()}
        if isinstance(self.value, tuple):
            return tuple(node.data for node in self.value)
        return self.value

    def inside(self, key: str | int) -> Node | None:
        """Return the value under a key or an index, or None."""
        if isinstance(self.value, dict):
            return self.value.get(key)
        if isinstance(self.value, tuple) and isinstance(key, int) and key < len(self.value):
            found: Node = self.value[key]
            return found
        return None

    @property
    def short(self) -> tuple[str, Node] | None:
        """The name and the options of a possible family member in the form ``{name: options}``."""
        if isinstance(self.value, dict) and len(self.value) == 1 and "name" not in self.value:
            return next(iter(self.value.items()))
        return None

    def short_field(self, part: str | int) -> Keys | None:
        """Return the keys written for ``rate_table`` as ``rate: {table: ...}``, and the like."""
        base, _, form = str(part).rpartition("_")
        written = self.inside(base) if base and self.inside(part) is None else None
        if written is None or not isinstance(written.value, dict):
            return None
        return (base, form) if written.inside(form) and form == "table" else (base,)

    def full(self) -> Node:
        """Convert a family member to its full form, ``{name: ..., ...}``; keep other values."""
        data = self.data
        full = full_form(data)
        if full is data:
            return self
        options = self.short and self.short[1].value
        return replace(self, value={"name": replace(self, value=full["name"]), **(options or {})})

    def with_value(self, path: Keys, value: Any) -> Node:
        """Replace the scalar at an existing path of keys."""
        if not path:
            return replace(self, value=value)
        key, inside = path[0], self.inside(path[0])
        assert inside is not None, path
        inside = inside.with_value(path[1:], value)
        if isinstance(self.value, tuple) and isinstance(key, int):
            return replace(self, value=(*self.value[:key], inside, *self.value[key + 1 :]))
        return replace(self, value={**self.value, key: inside})


@dataclass(frozen=True)
class Document:
    """A parsed scenario or study that is not validated yet.

    Attributes:
        root: its values.
        problems: problems of the text itself.
    """

    root: Node
    problems: tuple[Problem, ...] = ()

    @cached_property
    def data(self) -> Any:
        """The values as plain dicts, tuples and scalars."""
        return self.root.data

    def at(self, path: Keys) -> Any:
        """Return the plain value at a path of keys and indices, or None."""
        node: Node | None = self.root
        for key in path:
            node = node and node.inside(key)
        return node and node.data

    def written(self, path: Keys) -> Keys:
        """Return a path as the user wrote it: the form ``{name: options}`` adds a key."""
        node: Node | None = self.root
        keys: Keys = ()
        for key in path:
            if node and node.short and not node.inside(key) and node.short[1].inside(key):
                name, node = node.short
                keys = (*keys, name)
            keys = (*keys, key)
            node = node and node.inside(key)
        return keys

    def origin(self, path: Keys) -> Node:
        """Return the value at a path, in the form it was written in, or the nearest around it."""
        node = self.root
        for key in self.written(path):
            inside = node.inside(key)
            if inside is None:
                break
            node = inside
        return node


def problem_at(
    document: Document, path: Keys, found: str = "", expected: str = "", hint: str = ""
) -> Problem:
    """Create a problem with the value at a path, with the value's line."""
    origin = document.origin(path)
    return Problem(origin.file, origin.line, dotted(document.written(path)), found, expected, hint)
