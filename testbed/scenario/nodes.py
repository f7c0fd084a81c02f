"""YAML text to a tree of nodes that remember their lines.

The tree is built from the parser's events and not by PyYAML's composer: that one recurses, so that
deep nesting ends in a RecursionError or a crash, and expands aliases without a bound.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from reprlib import repr as shortened
from typing import Any, NoReturn

import yaml

from testbed.errors import Problem, ScenarioError, Unfit
from testbed.scenario.scalars import dotted, resolve

DEEPEST = 32
MOST_NODES = 20_000
MOST_PROBLEMS = 100
"""What has more is no scenario; the others are not told."""

NO_TABS = "spaces for indentation, YAML allows no tabs"
_TOO_DEEP = (f"more than {DEEPEST} levels of nesting", f"at most {DEEPEST}")


class Refused:
    """Stands where a value was refused already, so that no field accepts what is left."""

    def __str__(self) -> str:
        return "a value that was refused"


@dataclass
class Node:
    """A value and where it stands.

    Attributes:
        line: 1-based line of its beginning.
        value: a scalar, a list of nodes, or a dict of entries by key.
        text: a scalar as written; None for the others.
        merges: whether it is the key ``<<``, which takes over the entries of other mappings.
        height: levels below it.
        size: nodes it has, itself included, with every alias expanded.
    """

    line: int
    value: Any
    text: str | None = None
    merges: bool = False
    height: int = 0
    size: int = 1


@dataclass(frozen=True)
class MappingEntry:
    """A key's value in a mapping, and the line of the key."""

    line: int
    node: Node


@dataclass
class _Open:
    """A list or mapping whose end has not come yet."""

    node: Node
    anchor: str | None
    tagged: bool
    key: Node | None = None
    merged: list[Node] = field(default_factory=list)

    @property
    def expects_key(self) -> bool:
        return isinstance(self.node.value, dict) and self.key is None


def read_nodes(text: str, file: str, *, loader: Any = None) -> tuple[Node | None, list[Problem]]:
    """The root node (None for an empty file) and the problems that do not stop the reading.

    Args:
        text: YAML.
        file: its name for messages.
        loader: one of PyYAML's; the one in C where PyYAML has it.

    Raises:
        ScenarioError: the text is not YAML, or too deep or too large; holds every problem up to it.
    """
    reader = _Reader(file)
    try:
        for event in _events(text, loader or _fastest()):
            reader.take(event)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 0
        if "nesting depth" in str(error.problem):  # libyaml's own bound, as it reads ahead of us
            reader.fail(line, *_TOO_DEEP)
        if mark and _is_indented_by_tab(text, mark.line):
            reader.fail(line, "a tab in front of the text", NO_TABS)
        reader.fail(line, f"broken YAML ({error.problem})", _valid(error))
    except yaml.YAMLError as error:
        reader.fail(0, f"broken YAML ({error})", "YAML text")
    return reader.root, reader.problems


def _is_indented_by_tab(text: str, line: int) -> bool:
    """Whether there is a tab in the indentation of a line (from 0 on)."""
    lines = text.splitlines()[line : line + 1]
    return any("\t" in each[: len(each) - len(each.lstrip())] for each in lines)


def _fastest() -> Any:
    return yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader


def _events(text: str, loader: Any) -> Iterator[yaml.Event]:
    return yaml.parse(text, Loader=loader)


def _valid(error: yaml.MarkedYAMLError) -> str:
    if "\\t" in str(error.problem) or "tab" in str(error.problem):
        return NO_TABS
    return "`key: value` lines, indented alike, with brackets and quotes closed"


class _Reader:
    """Takes events in order and builds the tree."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.root: Node | None = None
        self.problems: list[Problem] = []
        self._open: list[_Open] = []
        self._anchors: dict[str, Node | None] = {}
        self._nodes = 0
        self._documents = 0

    def take(self, event: yaml.Event) -> None:
        """Take the next event."""
        assert event.start_mark is not None  # only events made by hand have none
        line = event.start_mark.line + 1
        match event:
            case yaml.DocumentStartEvent():
                self._documents += 1
                if self._documents > 1:
                    self.fail(line, "a second document", "one scenario a file, without `---`")
            case yaml.ScalarEvent():
                node = self._scalar(event, line)
                self._remember(event.anchor, node)
                self._add(node)
            case yaml.AliasEvent():
                self._add(self._aliased(event, line))
            case yaml.CollectionStartEvent():
                self._begin(event, line)
            case yaml.CollectionEndEvent():
                self._end()

    def fail(self, line: int, found: str, expected: str) -> NoReturn:
        """Give up.

        Raises:
            ScenarioError: always.
        """
        self._report(line, found, expected)
        raise ScenarioError(self.problems)

    def _report(self, line: int, found: str, expected: str) -> None:
        path = dotted(frame.key.text or "" for frame in self._open if frame.key is not None)
        self.problems.append(Problem(self.file, line, path, found, expected))
        if len(self.problems) == MOST_PROBLEMS:
            rest = Problem(self.file, 0, "", "", "", "and the rest was not read")
            raise ScenarioError([*self.problems, rest])

    def _scalar(self, event: yaml.ScalarEvent, line: int) -> Node:
        if event.tag is not None:
            self._refuse_tag(event.tag, line)
            return Node(line, Refused(), event.value)
        if any("\ud800" <= letter <= "\udfff" for letter in event.value):
            self._report(line, "half of a surrogate pair", "text")
            return Node(line, Refused(), shortened(event.value))
        plain = event.implicit[0]
        if not plain or (self._open and self._open[-1].expects_key):
            merges = plain and event.value == "<<"
            return Node(line, event.value, event.value, merges=merges)
        try:
            return Node(line, resolve(event.value), event.value)
        except Unfit as error:
            self._report(line, error.found, error.expected)
            return Node(line, Refused(), event.value)

    def _refuse_tag(self, tag: str, line: int) -> None:
        short = tag.replace("tag:yaml.org,2002:", "!!")
        self._report(line, f"the tag {short[:60]}", "a plain value: tags are not supported")

    def _aliased(self, event: yaml.AliasEvent, line: int) -> Node:
        name = event.anchor or ""
        if name not in self._anchors:
            self.fail(line, f"*{name[:40]}", f"an anchor &{name[:40]} above it")
        node = self._anchors[name]
        if node is None:
            self.fail(line, f"*{name[:40]} inside the value it names", "no value inside itself")
        return node

    def _remember(self, anchor: str | None, node: Node | None) -> None:
        if anchor is not None:
            self._anchors[anchor] = node

    def _begin(self, event: yaml.CollectionStartEvent, line: int) -> None:
        tagged = event.tag is not None
        if tagged:
            self._refuse_tag(str(event.tag), line)
        self._remember(event.anchor, None)
        is_mapping = isinstance(event, yaml.MappingStartEvent)
        node = Node(line, {} if is_mapping else [])
        self._open.append(_Open(node, event.anchor, tagged))
        self._count(node, line)

    def _end(self) -> None:
        frame = self._open.pop()
        for source in frame.merged:
            for key, entry in source.value.items():
                frame.node.value.setdefault(key, entry)
        if frame.tagged:
            frame.node.value = Refused()
        self._remember(frame.anchor, frame.node)
        self._nodes -= frame.node.size  # _add counts it again, whole
        self._add(frame.node)

    def _count(self, node: Node, line: int) -> None:
        self._nodes += node.size
        if self._nodes > MOST_NODES:
            self.fail(
                line,
                f"more than {MOST_NODES:,} values",
                f"at most {MOST_NODES:,}, aliases expanded",
            )
        if len(self._open) + node.height > DEEPEST:
            self.fail(line, *_TOO_DEEP)

    def _add(self, node: Node) -> None:
        self._count(node, node.line)
        if not self._open:
            self.root = node
            return
        frame = self._open[-1]
        frame.node.height = max(frame.node.height, node.height + 1)
        frame.node.size += node.size
        if isinstance(frame.node.value, list):
            frame.node.value.append(node)
        elif frame.key is None:
            frame.key = node
        else:
            self._put(frame, frame.key, node)
            frame.key = None

    def _put(self, frame: _Open, key: Node, node: Node) -> None:
        if key.text is None:
            self._report(key.line, "a list or a mapping as a key", "a name")
        elif key.merges:
            self._merge(frame, node)
        elif key.text in frame.node.value:
            first = frame.node.value[key.text].line
            self._report(key.line, f"the key again, first given on line {first}", "each key once")
        else:
            frame.node.value[key.text] = MappingEntry(key.line, node)

    def _merge(self, frame: _Open, node: Node) -> None:
        for source in node.value if isinstance(node.value, list) else [node]:
            if isinstance(source.value, dict):
                frame.merged.append(source)
            else:
                self._report(node.line, "no mapping", "a mapping to merge, like `<<: *defaults`")
