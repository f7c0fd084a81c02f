"""What replaces values of a scenario: files on top of the one that they extend, and ``--set``.

``extends: base.yaml`` in a scenario that says only how it differs from another:

- A mapping is merged with the one below it, key by key; anything else takes the other's place.
- ``null`` takes a key of the base away.
- A member of a family is merged if it is the same one, or if only options are given; another
  member takes its place whole. Code of the user's own is the same with the same file and class;
  another class has none of its options.
- Names of files in a base are relative to the base, as they are where it is run by itself.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from testbed.errors import Problem, ScenarioError
from testbed.scenario.document import Document, Node, problem_at
from testbed.scenario.dump import dump_data
from testbed.scenario.own_code import own_names
from testbed.scenario.parse import DEEPEST, parse_document, parse_value
from testbed.scenario.places import Place
from testbed.scenario.scalars import display, dotted, on_one_line
from testbed.scenario.source import display_name, find_scenario, read_text
from testbed.values.family import full_form

EXTENDS = "extends"


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
            if node.short and node.short[0] == key:  # the path has the short form, too
                inside = place.members.get(key)
            else:
                name = _member(node, place)
                node, inside = node.full(), place.members[name].enter(key) if name else None
        else:
            inside = place and place.enter(key)
        if not isinstance(node.value, dict):
            found, expected = display(node.data), f"a mapping, to set `{key}` in it"
            path = dotted(self.keys[:depth])
            raise ScenarioError([Problem(self.option, self.line, path, found, expected)])
        changed = self._put(node.inside(key), inside, depth + 1)
        return replace(node, value={**node.value, key: changed})


def extend(document: Document, root: Place, locate: Callable[[str], Path] | None) -> Document:
    """The document on top of the one it extends, and that on top of the next, if it extends any.

    Args:
        document: as it was read.
        root: the place of the whole document.
        locate: where a file lies, by its name relative to the document; without it there is none.

    Raises:
        ScenarioError: a base cannot be read, is no YAML, or leads back to itself.
    """
    chain, folder, seen = [document], Path(), set()
    while isinstance(chain[-1].data, dict) and EXTENDS in chain[-1].data:
        name = chain[-1].data[EXTENDS]
        if not isinstance(name, str) or locate is None:
            expected = "the name of a scenario file, like base.yaml"
            hint = "" if locate else "Text that is in no file extends none"
            raise _refusal(chain[-1], found=display(name), expected=expected, hint=hint)
        near = locate(str(folder / name))
        path = find_scenario(near, name=name)
        base = _read(path, chain[-1])
        if os.path.realpath(path) in seen:
            found = f"{display(name)}, which leads back to itself"
            raise _refusal(chain[-1], found=found, expected="a file that extends no file above it")
        seen.add(os.path.realpath(path))
        folder = (folder / name).parent if path == near else path.absolute().parent
        chain.append(_relocated(base, folder))
    if len(chain) == 1:
        return document
    whole, *others = (_without_extends(one.root) for one in reversed(chain))
    for above in others:
        whole = _merged(whole, above, root)
    return Document(whole, tuple(problem for one in reversed(chain) for problem in one.problems))


def _read(path: Path, above: Document) -> Document:
    """The base at a path; if it cannot be read at all, the error is at its name in ``above``."""
    try:
        text = read_text(path)
    except ScenarioError as error:
        (problem,) = error.problems
        if problem.line:
            raise
        found = f"{display(above.data[EXTENDS])}: {problem.found}"
        raise _refusal(above, found, problem.expected, hint=problem.hint) from None
    return parse_document(text, display_name(path))


def _relocated(base: Document, folder: Path) -> Document:
    """The base with the names of its own files relative to the document that extends it."""
    root = base.root
    for path, name in own_names(base):
        root = root.with_value(path, str(folder / name))
    return replace(base, root=root)


def _without_extends(root: Node) -> Node:
    return replace(root, value={key: node for key, node in root.value.items() if key != EXTENDS})


def _merged(below: Node, above: Node, place: Place | None) -> Node:
    """What is at a place at which both documents have something."""
    if place is not None and place.is_family:
        name, wanted = _member(below, place), _member(above, place)
        if not name or wanted not in (name, None):
            return above
        below, above = below.full(), above.full() if wanted else above
        if name == "custom" and not _same_code(below.data, above.data):
            named = ("name", "file", "class")
            below = replace(below, value={k: v for k, v in below.value.items() if k in named})
        place = place.members[name]
    if not isinstance(below.value, dict) or not isinstance(above.value, dict):
        return above
    merged = dict(below.value)
    for key, node in above.value.items():
        if key not in below.value:
            merged[key] = node
        elif node.value is None:
            del merged[key]
        else:
            merged[key] = _merged(merged[key], node, place and place.enter(key))
    return replace(above, value=merged)


def _same_code(below: dict[str, Any], above: dict[str, Any]) -> bool:
    """Whether both name the same file and class of the user's own."""
    named = {key: str(below[key]) for key in ("file", "class") if key in below}
    return all(
        os.path.normpath(str(above.get(key, was))) == os.path.normpath(was)
        for key, was in named.items()
    )


def _member(node: Node, place: Place) -> str | None:
    """The name of the member that is written at a family's place; None if options alone are."""
    value, members = node.data, place.members
    if isinstance(value, dict) and "name" not in value and not members.keys() & value.keys():
        return None
    full = full_form(value)
    name = full.get("name") if isinstance(full, dict) else None
    return name if isinstance(name, str) and name in members else ""


def _refusal(document: Document, found: str, expected: str, *, hint: str = "") -> ScenarioError:
    return ScenarioError(
        [problem_at(document, (EXTENDS,), found=found, expected=expected, hint=hint)]
    )


def _keys(path: str) -> tuple[str, ...]:
    """The path, cut at its dots; empty if it is none."""
    keys = tuple(part.strip() for part in path.split("."))
    return keys if all(keys) and len(keys) <= DEEPEST else ()
