"""``--set path=value``: one value of a scenario replaced from the command line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from testbed.errors import Problem, ScenarioError
from testbed.scenario.document import Document, Keys, Origin, parse_value
from testbed.scenario.dump import dump_data
from testbed.scenario.nodes import DEEPEST
from testbed.scenario.places import Place
from testbed.scenario.scalars import display, dotted, on_one_line
from testbed.values.family import full_form


@dataclass(frozen=True)
class Override:
    """One value to be set.

    Attributes:
        option: what the user typed, or the file that it stands in, for messages.
        keys: the dotted path, cut at its dots.
        value: plain data.
        line: where in a file it stands; 0 for an option of the command line.
    """

    option: str
    keys: tuple[str, ...]
    value: Any
    line: int = 0

    @classmethod
    def parse(cls, text: str) -> Override:
        """Read ``path=value``; the value is YAML, such as ``5``, ``10mbit`` or ``{mlp: null}``.

        Raises:
            ScenarioError: there is no path, no ``=``, or the value is no YAML.
        """
        option = f"--set {on_one_line(text, 80)}"
        path, equals, right = text.partition("=")
        keys = _keys(path)
        if not equals or not keys:
            problem = Problem(option, 0, "", "no path=value", "one, like --set workers.count=5")
            raise ScenarioError([problem])
        value, problems = parse_value(right, option)
        if problems:
            raise ScenarioError(problems)
        return cls(option, keys, value)

    @classmethod
    def of(cls, path: str, value: object) -> Override:
        """A value that a program has made, for a dotted path.

        Raises:
            ScenarioError: there is no path, or the value cannot stand in a scenario.
        """
        option = f"setting {on_one_line(path, 80)}"
        keys = _keys(path)
        if not keys:
            raise ScenarioError([Problem(option, 0, "", "no path", "one, like workers.count")])
        plain, problems = parse_value(dump_data(value, option), option)
        if problems:
            raise ScenarioError(problems)
        return cls(option, keys, plain)

    def apply(self, document: Document, root: Place) -> Document:
        """The document with the value in it, and with the option as the value's origin.

        Raises:
            ScenarioError: the path leads through something that is no mapping.
        """
        place: Place | None = root
        for depth, key in enumerate(self.keys):
            path = self.keys[:depth]
            if place is not None and place.is_family:
                if _is_short_form_of(key, document.at(path)):
                    place = place.members.get(key)
                    continue
                document = in_full_form(document, path)
                place = _member(place, document.at(path))
            around = document.at(path)
            if not isinstance(around, dict | None):
                expected = f"a mapping, to set `{key}` in it"
                raise ScenarioError(
                    [Problem(self.option, self.line, dotted(path), display(around), expected)]
                )
            place = place.enter(key) if place is not None else None
        return document.replace(self.keys, self.value, Origin(self.option, self.line))


def _keys(path: str) -> tuple[str, ...]:
    """The path, cut at its dots; empty if it is none."""
    keys = tuple(part.strip() for part in path.split("."))
    return keys if all(keys) and len(keys) <= DEEPEST else ()


def _is_short_form_of(name: str, value: Any) -> bool:
    """Whether a family member is written as ``{name: options}``."""
    return isinstance(value, dict) and list(value) == [name] and name != "name"


def in_full_form(document: Document, path: Keys) -> Document:
    """The document with the family member at ``path`` written as ``{name: ..., ...}``."""
    short = document.at(path)
    full = full_form(short)
    if full is short:
        return document
    origins = dict(document.origins)
    if isinstance(short, dict):
        named = (*path, *short)
        inside = [keys for keys in origins if keys[: len(named)] == named]
        for keys in inside:
            origins[(*path, *keys[len(named) :])] = origins.pop(keys)
    origins[(*path, "name")] = origins[path] = document.origin(path)
    return Document(document.data, origins, document.problems).replace(path, full)


def _member(place: Place, value: Any) -> Place | None:
    name = value.get("name") if isinstance(value, dict) else None
    return place.members.get(name) if isinstance(name, str) else None
