"""Overrides of scenario values: ``extends`` in files, and ``--set``.

``extends: base.yaml`` in a scenario that contains only its differences from another:

- A mapping is merged with the base's, key by key; any other value replaces the base's.
- ``null`` removes a key of the base.
- A family member is merged if it is the same member, or if only options are given; another member
  replaces it completely. The user's own code is the same member if file and class are the same;
  another class takes over no options.
- File names in a base are relative to the base, as if it were run by itself.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from testbed.errors import Problem, ScenarioError
from testbed.scenario.document import Document, Node, problem_at
from testbed.scenario.dump import dump_data
from testbed.scenario.own_code import relative_names
from testbed.scenario.parse import DEEPEST, parse_document, parse_value
from testbed.scenario.scalars import display, dotted, on_one_line
from testbed.scenario.schema_node import SchemaNode
from testbed.scenario.source import Locate, display_name, find_scenario, read_text
from testbed.values.family import full_form

EXTENDS = "extends"


@dataclass(frozen=True)
class Override:
    """One value to set.

    Attributes:
        option: the user's input, or the file that contains it, for messages.
        keys: the dotted path, split at its dots.
        value: plain data.
        line: its line in a file; 0 for a command-line option.
    """

    option: str
    keys: tuple[str, ...]
    value: Any
    line: int = 0

    @classmethod
    def parse(cls, text: str) -> Override:
        """Parse ``path=value``; the value is YAML, such as ``5``, ``10mbit`` or ``{mlp: null}``.

        Raises:
            ScenarioError: the path or ``=`` is missing, or the value is not YAML.
        """
        option = f"--set {on_one_line(text, 80)}"
        path, equals, right = text.partition("=")
        keys = _keys(path)
        if not equals or not keys:
            problem = Problem(
                option, 0, "", "no path=value", "path=value, like --set workers.count=5"
            )
            raise ScenarioError([problem])
        return cls(option, keys, parse_value(right, option))

    @classmethod
    def of(cls, path: str, value: object) -> Override:
        """Create an override from a program's value and a dotted path.

        Raises:
            ScenarioError: the path is missing, or the value is invalid in a scenario.
        """
        option = f"setting {on_one_line(path, 80)}"
        keys = _keys(path)
        if not keys:
            raise ScenarioError([Problem(option, 0, "", "no path", "a path, like workers.count")])
        return cls(option, keys, parse_value(dump_data(value, option), option))

    def apply(self, document: Document, root: SchemaNode) -> Document:
        """Set the value in the document, with the option as its origin.

        Raises:
            ScenarioError: the path passes through a value that is not a mapping, and no list with
                such an item.
        """
        return replace(document, root=self._put(document.root, root, 0))

    def _put(self, node: Node | None, schema: SchemaNode | None, depth: int) -> Node:
        """Return a value after setting the override in it; ``depth`` keys lead to it."""
        if depth == len(self.keys):
            return Node.of(self.value, self.option, self.line)
        key = self.keys[depth]
        if node is None or node.value is None:
            listed = schema is not None and schema.enter(0) is not None
            node = Node(() if listed else {}, self.option, self.line)
        if isinstance(node.value, tuple):
            return self._put_in_list(node, schema, depth)
        if schema is not None and schema.is_family:
            if node.short and node.short[0] == key:  # the path has the short form, too
                inside = schema.members.get(key)
            else:
                name = _member(node, schema)
                node, inside = node.full(), schema.members[name].enter(key) if name else None
        else:
            inside = schema and schema.enter(key)
        if not isinstance(node.value, dict):
            found, expected = display(node.data), f"a mapping, to set `{key}` in it"
            path = dotted(self.keys[:depth])
            raise ScenarioError([Problem(self.option, self.line, path, found, expected)])
        changed = self._put(node.inside(key), inside, depth + 1)
        return replace(node, value={**node.value, key: changed})

    def _put_in_list(self, node: Node, schema: SchemaNode | None, depth: int) -> Node:
        """Set the override in the item of a list whose index is the next key; see ``_put``."""
        key, last = self.keys[depth], len(node.value) - 1
        index = int(key) if key.isdecimal() else last + 1
        if index > last:
            path, found = (
                dotted(self.keys[:depth]),
                display(node.data) if node.value else "no items",
            )
            numbers = (
                f"an item's number, 0 to {last}, in place of `{key}`, or " if node.value else ""
            )
            expected = f"{numbers}the whole list: {path}=[...]"
            raise ScenarioError([Problem(self.option, self.line, path, found, expected)])
        changed = self._put(node.value[index], schema and schema.enter(index), depth + 1)
        return replace(node, value=(*node.value[:index], changed, *node.value[index + 1 :]))


def extend(document: Document, root: SchemaNode, locate: Locate | None) -> Document:
    """Merge a document with its base, and recursively with the base's base.

    Args:
        document: the parsed document.
        root: schema node of the whole document.
        locate: returns the path of a file relative to the document; None if there are none.

    Raises:
        ScenarioError: a base cannot be read, is not YAML, or extends itself indirectly.
    """
    chain, folder, seen = [document], Path(), set()
    while isinstance(chain[-1].data, dict) and EXTENDS in chain[-1].data:
        name = chain[-1].data[EXTENDS]
        if not isinstance(name, str) or locate is None:
            expected = "the name of a scenario file, like base.yaml"
            hint = "" if locate else "Only a scenario in a file can extend another"
            raise _refusal(chain[-1], found=display(name), expected=expected, hint=hint)
        near = locate(str(folder / name))
        path = find_scenario(near, name=name)
        base = _read(path, chain[-1])
        if os.path.realpath(path) in seen:
            found = f"{display(name)}, which extends itself through other files"
            raise _refusal(
                chain[-1],
                found=found,
                expected="a file that does not extend itself, directly or indirectly",
            )
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
    """Read the base at a path; if that fails completely, report its name in ``above``."""
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
    """Make the base's own file names relative to the document that extends it."""
    root = base.root
    for path, name in relative_names(base):
        root = root.with_value(path, str(folder / name))
    return replace(base, root=root)


def _without_extends(root: Node) -> Node:
    return replace(root, value={key: node for key, node in root.value.items() if key != EXTENDS})


def _merged(below: Node, above: Node, schema: SchemaNode | None) -> Node:
    """Merge two values of the same path."""
    if schema is not None and schema.is_family:
        name, wanted = _member(below, schema), _member(above, schema)
        if not name or wanted not in (name, None):
            return above
        below, above = below.full(), above.full() if wanted else above
        if name == "custom" and not _same_code(below.data, above.data):
            named = ("name", "file", "class")
            below = replace(below, value={k: v for k, v in below.value.items() if k in named})
        schema = schema.members[name]
    if not isinstance(below.value, dict) or not isinstance(above.value, dict):
        return above
    merged = dict(below.value)
    for key, node in above.value.items():
        if key not in below.value:
            merged[key] = node
        elif node.value is None:
            del merged[key]
        else:
            merged[key] = _merged(merged[key], node, schema and schema.enter(key))
    return replace(above, value=merged)


def _same_code(below: dict[str, Any], above: dict[str, Any]) -> bool:
    """Whether both refer to the same file and class of the user's own."""
    named = {key: str(below[key]) for key in ("file", "class") if key in below}
    return all(
        os.path.normpath(str(above.get(key, was))) == os.path.normpath(was)
        for key, was in named.items()
    )


def _member(node: Node, schema: SchemaNode) -> str | None:
    """Return the name of the family member in a value; None if it has only options."""
    value, members = node.data, schema.members
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
    """Split the path at its dots; empty if it is invalid."""
    keys = tuple(part.strip() for part in path.split("."))
    return keys if all(keys) and len(keys) <= DEEPEST else ()
