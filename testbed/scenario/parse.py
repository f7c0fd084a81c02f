"""YAML text to a document, by PyYAML's events.

Its composer is not used: it recurses without a bound, expands aliases without one, keeps the last
of two equal keys and reads scalars as YAML 1.1.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, NoReturn

import yaml

from testbed.errors import Problem, ScenarioError, Unfit
from testbed.scenario.document import Document, Keys, Node, Refused
from testbed.scenario.scalars import display, dotted, resolve
from testbed.scenario.source import check_text

DEEPEST = 32
MOST_NODES = 20_000
MOST_PROBLEMS = 100
"""The most that are reported of one file."""

ASIDE = "x-"
"""Keys at the top that begin so are the user's own: a place for anchors."""

NO_TABS = "spaces for indentation, YAML allows no tabs"
_TOO_DEEP = (f"more than {DEEPEST} levels of nesting", f"at most {DEEPEST}")
_VALID = "`key: value` lines, indented alike, with brackets and quotes closed"


def parse_document(text: str, file: str, *, loader: Any = None) -> Document:
    """Read YAML text; entries set aside, under a key such as ``x-links``, are left out.

    Args:
        text: YAML.
        file: its name for messages.
        loader: one of PyYAML's; the one in C where PyYAML has it.

    Raises:
        ScenarioError: no YAML can be made of it, or it is not one mapping.
    """
    root, problems = _read(text, file, loader)
    if root is None or not isinstance(root.value, dict):
        found = "an empty file" if root is None else display(root.data)
        expected = "a mapping that begins with `name: ...`"
        problem = Problem(file, root.line if root else 0, "", found, expected)
        raise ScenarioError([*problems, problem])
    entries = {key: node for key, node in root.value.items() if not key.startswith(ASIDE)}
    return Document(replace(root, value=entries), tuple(problems))


def parse_value(text: str, option: str) -> Any:
    """Read one YAML value given on the command line by ``option``.

    Raises:
        ScenarioError: no YAML can be made of it.
    """
    try:
        root, problems = _read(text, option)
    except ScenarioError as error:
        root, problems = None, list(error.problems)
    if problems:
        raise ScenarioError([replace(problem, line=0) for problem in problems])
    return root and root.data


def _read(text: str, file: str, loader: Any = None) -> tuple[Node | None, list[Problem]]:
    """The root (None for an empty file) and the problems that do not stop the reading.

    Raises:
        ScenarioError: the text is not YAML, or too deep or too large; holds every problem up to it.
    """
    check_text(text, file)
    fastest = yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader
    composer = _Composer(text, file, loader or fastest)
    try:
        return composer.root(), composer.problems
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, what = mark.line + 1 if mark else 0, str(error.problem)
        if "nesting depth" in what:  # libyaml's own bound, as it reads ahead of us
            composer.fail(line, *_TOO_DEEP)
        if re.match(r"\s*\t", "".join(text.splitlines()[line - 1 : line])):
            composer.fail(line, "a tab in front of the text", NO_TABS)
        tabs = "\\t" in what or "tab" in what
        composer.fail(line, f"broken YAML ({what})", NO_TABS if tabs else _VALID)
    except yaml.YAMLError as error:
        composer.fail(0, f"broken YAML ({error})", "YAML text")


class _Composer:
    """Makes nodes of events, no deeper than DEEPEST and no more than MOST_NODES.

    Attributes:
        problems: what was found so far.
    """

    def __init__(self, text: str, file: str, loader: Any) -> None:
        self.problems: list[Problem] = []
        self._file = file
        self._events = yaml.parse(text, Loader=loader)
        self._path: Keys = ()
        self._anchors: dict[str, Node | None] = {}
        self._count = 0

    def root(self) -> Node | None:
        """The only document's; None if there is none."""
        root = None
        for event in self._events:
            if isinstance(event, yaml.DocumentStartEvent) and root is not None:
                found, expected = "a second document", "one scenario a file, without `---`"
                self.fail(_line(event), found, expected)
            if isinstance(event, yaml.NodeEvent):
                root = self._node(event, ())
            self._path = ()
        return root

    def fail(self, line: int, found: str, expected: str) -> NoReturn:
        """Give up.

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
        """The next event, which concerns the value at a path."""
        self._path = path
        return next(self._events)

    def _node(self, event: yaml.NodeEvent, path: Keys, key_line: int = 0) -> Node:
        """The value that begins with an event, at the line of its key if it has one."""
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
            self.fail(line, f"*{name[:40]} inside the value it names", "no value inside itself")
        return node

    def _bound(self, value: Any, depth: int, line: int) -> None:
        """Count a value, with those inside it where an alias repeats them."""
        self._count += 1
        if self._count > MOST_NODES:
            found = f"more than {MOST_NODES:,} values"
            self.fail(line, found, f"at most {MOST_NODES:,}, aliases expanded")
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
        except Unfit as error:
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
                found = f"the key again, first given on line {entries[key].line}"
                self._report(line, found, "each key once")
            else:
                entries[key] = node
        for source in merged:
            entries |= {key: node for key, node in source.value.items() if key not in entries}
        return entries

    def _key(self, event: yaml.NodeEvent, path: Keys) -> str | None:
        """A key's text; None for a list or a mapping."""
        plain = isinstance(event, yaml.ScalarEvent) and event.tag is None and event.anchor is None
        value = None if plain else self._node(event, path).value
        if isinstance(event, yaml.ScalarEvent):
            return str(event.value)
        if isinstance(value, dict | tuple | Refused):
            return None
        return value if isinstance(value, str) else display(value)

    def _mappings(self, node: Node) -> list[Node]:
        """The mappings that are merged, of one or of a list."""
        nodes = node.value if isinstance(node.value, tuple) else (node,)
        for one in nodes:
            if not isinstance(one.value, dict):
                expected = "a mapping to merge, like `<<: *defaults`"
                self._report(node.line, "no mapping", expected)
        return [one for one in nodes if isinstance(one.value, dict)]


def _merges(key: yaml.NodeEvent) -> bool:
    """Whether it is the key ``<<``, which takes over the entries of other mappings."""
    return isinstance(key, yaml.ScalarEvent) and key.value == "<<" and key.implicit[0]


def _line(event: yaml.Event) -> int:
    assert event.start_mark is not None  # only events made by hand have none
    return event.start_mark.line + 1
