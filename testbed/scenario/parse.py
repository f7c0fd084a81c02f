"""Parses YAML text to a document, using PyYAML's events.

PyYAML's composer is not used: it recurses and expands aliases without limit, keeps the last of two
equal keys and reads scalars as YAML 1.1.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, NoReturn

import yaml

from testbed.errors import InvalidValue, Problem, ScenarioError
from testbed.scenario.document import Document, Keys, Node, Refused
from testbed.scenario.scalars import display, dotted, resolve
from testbed.scenario.source import check_text, display_name, read_text

DEEPEST = 32
MOST_NODES = 20_000
MOST_PROBLEMS = 100
"""Maximum number of problems reported per file."""

IGNORED_PREFIX = "x-"
"""Prefix of top-level keys that are the user's own, such as for anchors."""

NO_TABS = "spaces for indentation: YAML does not allow tabs"
_TOO_DEEP = (f"more than {DEEPEST} levels of nesting", f"at most {DEEPEST}")
_VALID = "`key: value` lines, indented alike, with brackets and quotes closed"


def parse_document(text: str, file: str, *, loader: Any = None, own_keys: bool = False) -> Document:
    """Parse YAML text; leave out the user's own entries, such as ``x-links``.

    Args:
        text: YAML.
        file: its name in messages.
        loader: a PyYAML loader; by default the C loader if available.
        own_keys: whether to keep the user's own entries.

    Raises:
        ScenarioError: it is not YAML, or not a single mapping.
    """
    root, problems = _read(text, file, loader)
    if root is None or not isinstance(root.value, dict):
        found = "an empty file" if root is None else display(root.data)
        expected = "a mapping that begins with `name: ...`"
        problem = Problem(file, root.line if root else 0, "", found, expected)
        raise ScenarioError([*problems, problem])
    entries = {
        key: node
        for key, node in root.value.items()
        if own_keys or not key.startswith(IGNORED_PREFIX)
    }
    return Document(replace(root, value=entries), tuple(problems))


def parse_file(path: Path) -> Document:
    """Parse the YAML file of a scenario or a study; errors are those of ``parse_document`` too.

    Raises:
        ScenarioError: it cannot be read.
    """
    return parse_document(read_text(path), display_name(path))


def parse_value(text: str, option: str) -> Any:
    """Parse a YAML value from the command-line ``option``.

    Raises:
        ScenarioError: it is not YAML.
    """
    try:
        root, problems = _read(text, option)
    except ScenarioError as error:
        root, problems = None, list(error.problems)
    if problems:
        raise ScenarioError([replace(problem, line=0) for problem in problems])
    return root and root.data


@lru_cache(maxsize=4)  # a command asks of a file what it is before it loads it
def _read(text: str, file: str, loader: Any = None) -> tuple[Node | None, list[Problem]]:
    """Return the root (None for an empty file) and the problems that do not stop reading.

    Raises:
        ScenarioError: the text is not YAML, too deep or too large; holds all problems so far.
    """
    check_text(text, file)
    fastest = yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader
    composer = _Composer(text, file, loader or fastest)
    try:
        return composer.root(), composer.problems
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, what = mark.line + 1 if mark else 0, str(error.problem)
        if "nesting depth" in what:  # libyaml's own limit, as it reads ahead
            composer.fail(line, *_TOO_DEEP)
        if re.match(r"\s*\t", "".join(text.splitlines()[line - 1 : line])):
            composer.fail(line, "a tab in front of the text", NO_TABS)
        tabs = "\\t" in what or "tab" in what
        composer.fail(line, f"broken YAML ({what})", NO_TABS if tabs else _VALID)
    except yaml.YAMLError as error:
        composer.fail(0, f"broken YAML ({error})", "YAML text")


class _Composer:
    """Creates nodes from events, up to DEEPEST levels and MOST_NODES nodes.

    Attributes:
        problems: the problems so far.
    """

    def __init__(self, text: str, file: str, loader: Any) -> None:
        self.problems: list[Problem] = []
        self._file = file
        self._events = yaml.parse(text, Loader=loader)
        self._path: Keys = ()
        self._anchors: dict[str, Node | None] = {}
        self._count = 0

    def root(self) -> Node | None:
        """Return the root of the only document; None if there is none."""
        root = None
        for event in self._events:
            if isinstance(event, yaml.DocumentStartEvent) and root is not None:
                found, expected = "a second document", "one scenario per file, without `---`"
                self.fail(_line(event), found, expected)
            if isinstance(event, yaml.NodeEvent):
                root = self._node(event, ())
            self._path = ()
        return root

    def fail(self, line: int, found: str, expected: str) -> NoReturn:
        """Stop reading.

        Raises:
            ScenarioError: always.
        """
        self._report(line, found, expected)
        raise ScenarioError(self.problems)

    def _report(self, line: int, found: str, expected: str) -> None:
        keys = dotted(key for key in self._path if isinstance(key, str))
        self.problems.append(Problem(self._file, line, keys, found, expected))
        if len(self.problems) == MOST_PROBLEMS:
            rest = Problem(self._file, 0, "", "", "", "and the rest was not read")
            raise ScenarioError([*self.problems, rest])

    def _next(self, path: Keys) -> Any:
        """Return the next event, which belongs to the value at a path."""
        self._path = path
        return next(self._events)

    def _node(self, event: yaml.NodeEvent, path: Keys, key_line: int = 0) -> Node:
        """Read the value that begins with an event; its line is that of its key, if any."""
        line = _line(event)
        if isinstance(event, yaml.AliasEvent):
            node = self._aliased(event.anchor or "", line)
            self._bound(node.value, len(path), line)
            return replace(node, line=key_line or line)
        self._bound(None, len(path), line)
        if event.anchor is not None:
            self._anchors[event.anchor] = None
        tag = getattr(event, "tag", None)
        if tag is not None:
            short = tag.replace("tag:yaml.org,2002:", "!!")
            expected = "a plain value: tags are not supported"
            self._report(line, f"the tag {short[:60]}", expected)
        value = self._value(event, path, tagged=tag is not None)
        node = Node(value, self._file, key_line or line)
        if event.anchor is not None:
            self._anchors[event.anchor] = node
        return node

    def _value(self, event: yaml.NodeEvent, path: Keys, *, tagged: bool) -> Any:
        match event:
            case yaml.MappingStartEvent():
                value: Any = self._mapping(path)
            case yaml.SequenceStartEvent():
                value = self._sequence(path)
            case yaml.ScalarEvent() if not tagged:
                return self._scalar(event)
        return Refused() if tagged else value

    def _aliased(self, name: str, line: int) -> Node:
        if name not in self._anchors:
            self.fail(line, f"*{name[:40]}", f"an anchor &{name[:40]} above it")
        node = self._anchors[name]
        if node is None:
            self.fail(
                line,
                f"the alias *{name[:40]} inside the value with the anchor &{name[:40]}",
                "an alias after the end of that value",
            )
        return node

    def _bound(self, value: Any, depth: int, line: int) -> None:
        """Count a value, including its children where an alias repeats them."""
        self._count += 1
        if self._count > MOST_NODES:
            found = f"more than {MOST_NODES:,} values"
            self.fail(line, found, f"at most {MOST_NODES:,}, counting aliases as copies")
        if depth > DEEPEST:
            self.fail(line, *_TOO_DEEP)
        if isinstance(value, dict | tuple):
            for node in value.values() if isinstance(value, dict) else value:
                self._bound(node.value, depth + 1, line)

    def _scalar(self, event: yaml.ScalarEvent) -> Any:
        text = event.value
        if any("\ud800" <= letter <= "\udfff" for letter in text):
            self._report(_line(event), "half of a surrogate pair", "text")
            return Refused()
        if not event.implicit[0]:  # quoted
            return text
        try:
            return resolve(text)
        except InvalidValue as error:
            self._report(_line(event), error.found, error.expected)
            return Refused()

    def _sequence(self, path: Keys) -> tuple[Node, ...]:
        items: list[Node] = []
        while not isinstance(event := self._next(path), yaml.SequenceEndEvent):
            items.append(self._node(event, (*path, len(items))))
        return tuple(items)

    def _mapping(self, path: Keys) -> dict[str, Node]:
        entries: dict[str, Node] = {}
        merged: list[Node] = []
        while not isinstance(event := self._next(path), yaml.MappingEndEvent):
            line, key = _line(event), self._key(event, path)
            inside = path if key is None else (*path, key)
            node = self._node(self._next(inside), inside, line)
            self._path = inside
            if key is None:
                self._report(line, "a list or a mapping as a key", "a name")
            elif _merges(event):
                merged += self._mappings(node)
            elif key in entries:
                found = f"a duplicate key, first given on line {entries[key].line}"
                self._report(line, found, "each key once")
            else:
                entries[key] = node
        for source in merged:
            entries |= {key: node for key, node in source.value.items() if key not in entries}
        return entries

    def _key(self, event: yaml.NodeEvent, path: Keys) -> str | None:
        """Return a key's text; None for a list or a mapping."""
        plain = isinstance(event, yaml.ScalarEvent) and event.tag is None and event.anchor is None
        value = None if plain else self._node(event, path).value
        if isinstance(event, yaml.ScalarEvent):
            return str(event.value)
        if isinstance(value, dict | tuple | Refused):
            return None
        return value if isinstance(value, str) else display(value)

    def _mappings(self, node: Node) -> list[Node]:
        """Return the mappings to merge, from one mapping or a list."""
        nodes = node.value if isinstance(node.value, tuple) else (node,)
        for one in nodes:
            if not isinstance(one.value, dict):
                expected = "a mapping to merge, like `<<: *defaults`"
                self._report(node.line, "no mapping", expected)
        return [one for one in nodes if isinstance(one.value, dict)]


def _merges(key: yaml.NodeEvent) -> bool:
    """Whether it is the key ``<<``, which merges the entries of other mappings."""
    return isinstance(key, yaml.ScalarEvent) and key.value == "<<" and key.implicit[0]


def _line(event: yaml.Event) -> int:
    assert event.start_mark is not None  # only events created by hand have none
    return event.start_mark.line + 1
