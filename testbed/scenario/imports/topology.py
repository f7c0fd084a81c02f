"""Nodes, switches and links of another tool's topology, and the workload that they become."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from testbed.errors import Problem, ScenarioError
from testbed.scenario.checks import TAKEN
from testbed.scenario.workload_names import RESERVED

PLACEHOLDER = ("sleep", "infinity")
"""The command of a node whose own is in an image."""

LONGEST_NAME = 40
STOP = "10min"
_IN_BRACES = re.compile(r"\{[a-z0-9_-]+(?::[A-Za-z0-9_-]+)?\}")


@dataclass(frozen=True)
class Edge:
    """A link between two nodes or switches.

    Attributes:
        ends: their names.
        up: shape from the first to the second, as in a scenario.
        down: shape back.
        line: where the file has it.
        mtu: bytes of the largest IP packet; None if not given.
    """

    ends: tuple[str, str]
    up: Mapping[str, Any]
    down: Mapping[str, Any]
    line: int
    mtu: int | None = None

    def seen_from(self, name: str) -> dict[str, Any]:
        """Return the link as that of a node at one of its ends."""
        up, down = (self.up, self.down) if name == self.ends[0] else (self.down, self.up)
        given = {"mtu": self.mtu, "up": dict(up), "down": dict(down)}
        return {key: value for key, value in given.items() if value}


@dataclass
class Topology:
    """What was read from a file, by the names in the file, and what could not be had.

    Attributes:
        file: the file, as the user named it.
        name: name of the experiment.
        programs: fields of the programs, without switch and link.
        lines: where the file has the programs.
        shared: programs whose nodes all share the program's links.
        switches: names of the switches.
        edges: the links.
        faults: the program of each planned fault, and the fault, whose `nodes` are what follows
            the program's name: numbers, or nothing for a single node.
        outside: nodes that are not in the scenario, with their links.
        notes: what has no counterpart, with its line.
    """

    file: str
    name: str
    programs: dict[str, dict[str, Any]] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)
    shared: set[str] = field(default_factory=set)
    switches: set[str] = field(default_factory=set)
    edges: list[Edge] = field(default_factory=list)
    faults: list[tuple[str, dict[str, dict[str, Any]]]] = field(default_factory=list)
    outside: set[str] = field(default_factory=set)
    notes: list[tuple[int, str]] = field(default_factory=list)

    def note(self, line: int, text: str) -> None:
        """Record what the scenario does not have."""
        self.notes.append((line, text))

    def refuse(self, line: int, where: str, found: str, expected: str) -> ScenarioError:
        """Return the error about a value in the file."""
        return ScenarioError([Problem(self.file, line, where, found, expected)])

    def add_program(
        self, name: str, line: int, command: Sequence[str], *, image: str = "", **fields: Any
    ) -> None:
        """Add a program; without a command it sleeps, and a note says so."""
        if name in self.programs or name in self.switches:
            raise self.refuse(line, name, "a second node of this name", "one")
        if not command:
            own = f"its command is in the image {image}" if image else "it has no command"
            self.note(line, f"{name}: {own}, so it sleeps until you write `command`")
            command = PLACEHOLDER
        elif image:
            self.note(line, f"{name} runs its command on this host, without the image {image}")
        words = [_IN_BRACES.sub(lambda found: f"{{{found[0]}}}", word) for word in command]
        given = {key: value for key, value in fields.items() if value not in (None, {})}
        if given.get("count") == 1:
            del given["count"]
        self.programs[name] = {"command": words, **given}
        self.lines[name] = line

    def add_edge(self, edge: Edge, where: str, kind: str) -> None:
        """Add a link between nodes of this ``kind``, all of which are added before."""
        for end in edge.ends:
            if end not in self.programs and end not in self.switches:
                known = ", ".join([*self.programs, *sorted(self.switches)])
                raise self.refuse(edge.line, where, end, f"{kind}: {known}")
        self.edges.append(edge)

    def scenario(self, name: str) -> dict[str, Any]:
        """Return the scenario, under this name.

        A node with one link to a switch has that link as its own. A node with several links, or
        whose only link leads to another node, is on a switch of its own, at which they end.

        Raises:
            ScenarioError: there are no nodes, or two of them have no path.
        """
        self._drop_unlinked()
        self._join_nodes()
        self._check_paths()
        own = self._own_links()
        trunks = [edge for edge in self._single_edges() if edge not in own.values()]
        names = self._new_names()
        programs = {}
        for old, fields in self.programs.items():
            at = next((end for end in own[old].ends if end != old), old) if old in own else old
            placed = {"switch": _word(at)} if trunks else {}
            link = {"link": link} if old in own and (link := own[old].seen_from(old)) else {}
            programs[names[old]] = {**placed, **fields, **link}
        data: dict[str, Any] = {"name": name, "workload": programs}
        if trunks:
            data["links"] = _named_trunks(trunks, taken=set(names.values()))
        faults = [_renamed(name, fault, names) for name, fault in self.faults if name in names]
        ends = not any(tuple(one["command"]) == PLACEHOLDER for one in self.programs.values())
        stop = {} if ends else {"stop": {"time": STOP}}
        return {**data, **({"faults": faults} if faults else {}), **stop}

    def _drop_unlinked(self) -> None:
        linked = {end for edge in self.edges for end in edge.ends}
        for name in [name for name in self.programs if name not in linked]:
            if len(self.programs) > 1 or self.edges:
                self.note(self.lines[name], f"{name} has no link to other nodes: left out")
                del self.programs[name]
        if not self.programs:
            raise self.refuse(0, "", "no node that runs a command", "at least one, with a link")

    def _join_nodes(self) -> None:
        """Give nodes a switch of their own where a single link to a switch is not enough."""
        ends = Counter(end for edge in self.edges for end in edge.ends)
        self.switches |= {name for name in self.programs if ends[name] > 1 or name in self.shared}
        for name in self.programs.keys() & self.switches:
            if "count" in self.programs[name] and name not in self.shared:
                self.note(self.lines[name], f"the nodes of {name} share its links")
        for edge in self.edges:
            if not self.switches & set(edge.ends):
                self.switches.add(edge.ends[0])

    def _own_links(self) -> dict[str, Edge]:
        """Return the link of each node that has one to a switch, by the node."""
        return {
            name: edge for edge in self.edges for name in edge.ends if name not in self.switches
        }

    def _single_edges(self) -> list[Edge]:
        """Return the links, without those that are not the first between their ends."""
        kept: dict[frozenset[str], Edge] = {}
        for edge in self.edges:
            first = kept.setdefault(frozenset(edge.ends), edge)
            if first is not edge:
                between = " and ".join(edge.ends)
                self.note(edge.line, f"a second link of {between}, left out: see line {first.line}")
        return list(kept.values())

    def _check_paths(self) -> None:
        first, *_ = self.programs
        reached, added = {first}, True
        while added:
            near = {end for edge in self.edges if reached & set(edge.ends) for end in edge.ends}
            added = not near <= reached
            reached |= near
        for name in self.programs:
            if name not in reached:
                expected = f"links that connect it with {first}"
                raise self.refuse(self.lines[name], name, f"no path to {first}", expected)

    def _new_names(self) -> dict[str, str]:
        """Return the names of the programs in the scenario, and note those that change."""
        names: dict[str, str] = {}
        for old in self.programs:
            new = _word(old)
            if new in RESERVED or TAKEN.fullmatch(new) or new == "flower":
                new = f"n-{new}"
            if new in names.values():
                found = f"{old}, which becomes {new} like another node"
                raise self.refuse(self.lines[old], old, found, "names that differ by a letter")
            if new != old:
                self.note(self.lines[old], f"{old} is named {new}")
            names[old] = new
        return names


def _word(name: str) -> str:
    """Return a name as a scenario allows it: lowercase letters, digits, hyphens, underscores."""
    return re.sub(r"[^a-z0-9_-]+", "-", name.lower()).strip("-_")[:LONGEST_NAME] or "unnamed"


def _named_trunks(trunks: Sequence[Edge], *, taken: set[str]) -> dict[str, dict[str, Any]]:
    """Return links between switches, named after their ends."""
    named: dict[str, dict[str, Any]] = {}
    for number, edge in enumerate(trunks):
        ends = [_word(end) for end in edge.ends]
        name = "-".join(ends)
        if len(name) > LONGEST_NAME or name in taken or name in named:
            name = f"link{number}"
        named[name] = {"between": ends, **edge.seen_from(edge.ends[0])}
    return named


def _renamed(
    program: str, fault: Mapping[str, Mapping[str, Any]], names: Mapping[str, str]
) -> dict[str, Any]:
    """Return a fault with the names that nodes have in the scenario."""
    return {
        kind: {**fields, "nodes": [f"{names[program]}{number}" for number in fields["nodes"]]}
        for kind, fields in fault.items()
    }
