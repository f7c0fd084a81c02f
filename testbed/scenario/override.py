"""``--set path=value``: one value of a scenario replaced from the command line."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from testbed.errors import Problem, ScenarioError
from testbed.scenario.document import Document, Node
from testbed.scenario.dump import dump_data
from testbed.scenario.parse import DEEPEST, parse_value
from testbed.scenario.places import Place
from testbed.scenario.scalars import display, dotted, on_one_line


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
        return cls(option, keys, parse_value(right, option))

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
        return cls(option, keys, parse_value(dump_data(value, option), option))

    def apply(self, document: Document, root: Place) -> Document:
        """The document with the value in it, and with the option as the value's origin.

        Raises:
            ScenarioError: the path leads through something that is no mapping.
        """
        return replace(document, root=self._put(document.root, root, 0))

    def _put(self, node: Node | None, place: Place | None, depth: int) -> Node:
        """A value, of which ``depth`` keys lead to the place, with the one to be set in it."""
        if depth == len(self.keys):
            return Node.of(self.value, self.option, self.line)
        key = self.keys[depth]
        if node is None or node.value is None:
            node = Node({}, self.option, self.line)
        if place is not None and place.is_family:
            if key != "name" and isinstance(node.value, dict) and list(node.value) == [key]:
                inside = place.members.get(key)  # {name: options}, and the path says so too
            else:
                node = node.full()
                member = _member(place, node)
                inside = member and member.enter(key)
        else:
            inside = place and place.enter(key)
        if not isinstance(node.value, dict):
            found, expected = display(node.data), f"a mapping, to set `{key}` in it"
            path = dotted(self.keys[:depth])
            raise ScenarioError([Problem(self.option, self.line, path, found, expected)])
        changed = self._put(node.inside(key), inside, depth + 1)
        return replace(node, value={**node.value, key: changed})


def _keys(path: str) -> tuple[str, ...]:
    """The path, cut at its dots; empty if it is none."""
    keys = tuple(part.strip() for part in path.split("."))
    return keys if all(keys) and len(keys) <= DEEPEST else ()


def _member(place: Place, node: Node) -> Place | None:
    name = node.inside("name")
    return place.members.get(name.value) if name and isinstance(name.value, str) else None
