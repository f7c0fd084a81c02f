"""A scenario as plain data that remembers the file and line of each of its values."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from testbed.errors import Problem
from testbed.scenario.scalars import dotted
from testbed.values.family import full_form

Keys = tuple[str | int, ...]
Finding = tuple[Keys, str, str] | tuple[Keys, str, str, str]
"""A path, what was found there, what was expected, and a hint if there is one."""


class Refused:
    """Stands where a value was refused already, so that no field accepts what is left."""

    def __str__(self) -> str:
        return "a value that was refused"


@dataclass(frozen=True, slots=True)
class Node:
    """A value and where it came from.

    Attributes:
        value: a scalar, a dict of nodes, a tuple of nodes, or Refused.
        file: the file as the user named it, or an option such as ``--set workers.count=5``.
        line: 1-based line, that of its key if it has one; 0 for an option.
    """

    value: Any
    file: str = ""
    line: int = 0

    @classmethod
    def of(cls, data: Any, file: str = "", line: int = 0) -> Node:
        """Plain data, all of it from one place."""
        if isinstance(data, dict):
            data = {key: cls.of(value, file, line) for key, value in data.items()}
        elif isinstance(data, tuple | list):
            data = tuple(cls.of(value, file, line) for value in data)
        return cls(data, file, line)

    @property
    def data(self) -> Any:
        """Plain dicts, tuples and scalars."""
        if isinstance(self.value, dict):
            return {key: node.data for key, node in self.value.items()}
        if isinstance(self.value, tuple):
            return tuple(node.data for node in self.value)
        return self.value

    def inside(self, key: str | int) -> Node | None:
        """The value under a key or an index, or None if there is none."""
        if isinstance(self.value, dict):
            return self.value.get(key)
        if isinstance(self.value, tuple) and isinstance(key, int) and key < len(self.value):
            found: Node = self.value[key]
            return found
        return None

    @property
    def short(self) -> tuple[str, Node] | None:
        """The name and the options, if it may be a family's member as ``{name: options}``."""
        if isinstance(self.value, dict) and len(self.value) == 1 and "name" not in self.value:
            return next(iter(self.value.items()))
        return None

    def full(self) -> Node:
        """A member of a family in its full form, ``{name: ..., ...}``; anything else as it is."""
        data = self.data
        full = full_form(data)
        if full is data:
            return self
        options = self.short and self.short[1].value
        return replace(self, value={"name": replace(self, value=full["name"]), **(options or {})})

    def with_value(self, path: Keys, value: Any) -> Node:
        """With another scalar at a path of keys, at which there is one."""
        if not path:
            return replace(self, value=value)
        inside = self.value[path[0]].with_value(path[1:], value)
        return replace(self, value={**self.value, path[0]: inside})


@dataclass(frozen=True)
class Document:
    """A scenario or study as it was read, not checked yet.

    Attributes:
        root: its values.
        problems: what was wrong with the text itself.
    """

    root: Node
    problems: tuple[Problem, ...] = ()

    @cached_property
    def data(self) -> Any:
        """Plain dicts, tuples and scalars."""
        return self.root.data

    def at(self, path: Keys) -> Any:
        """The plain value at a path of keys and indices, or None if there is none."""
        node: Node | None = self.root
        for key in path:
            node = node and node.inside(key)
        return node and node.data

    def written(self, path: Keys) -> Keys:
        """A path as the user wrote it: in the form ``{name: options}`` it has one key more."""
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
        """The value at a path, in whichever form it was written, or the nearest one around it."""
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
    """A problem with the value at a path, at the line that it came from."""
    origin = document.origin(path)
    return Problem(origin.file, origin.line, dotted(document.written(path)), found, expected, hint)
