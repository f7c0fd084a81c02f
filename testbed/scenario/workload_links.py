"""The links of a workload's nodes: which nodes have which, and the recordings that they follow."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product

from testbed.errors import Problem
from testbed.scenario.costs import mean_of, read_table
from testbed.scenario.devices import KINDS, drawn_link
from testbed.scenario.direction import TRACED, Link, Recording
from testbed.scenario.document import Document, problem_at
from testbed.scenario.per_device import Table
from testbed.scenario.scalars import dotted
from testbed.scenario.source import Locate
from testbed.scenario.traces import (
    Following,
    offset_of,
    quantity,
    read_link_recording,
    recordings_of,
    unfit,
    unreadable,
)
from testbed.scenario.workload import Workload
from testbed.scenario.workload_availability import attendances
from testbed.values.fields import replaced
from testbed.values.traces import InvalidLine, Trace


@dataclass(frozen=True)
class WrittenLink:
    """A link as the scenario has it.

    Attributes:
        path: its path in the scenario.
        nodes: the numbers of the nodes that have it.
    """

    path: tuple[str, ...]
    link: Link
    nodes: tuple[int, ...]

    @property
    def owner(self) -> str:
        """The program or class that has it, like ``rank`` and ``rank.classes.slow``."""
        return ".".join(self.path[1:-1])


@dataclass(frozen=True)
class RecordedValue:
    """A rate or a delay of such a link that follows a recording."""

    written: WrittenLink
    direction: str
    what: str
    recording: Recording

    @property
    def path(self) -> tuple[str, ...]:
        """Its path in the scenario."""
        return (*self.written.path, self.direction, self.what)

    def read(self, locate: Locate | None) -> Trace:
        """Read the recording; see ``read_recording``."""
        return read_link_recording(self.recording, self.what, locate)


def written_links(workload: Workload) -> Iterator[WrittenLink]:
    """Yield the links of all programs and classes."""
    first = 0
    for name, program in workload.workload.items():
        own = ("workload", name)
        classes = list(enumerate(program.node_classes(name), first))
        shared = tuple(number for number, (_, one) in classes if one.link is None)
        yield WrittenLink((*own, "link"), program.link, shared)
        for kind, member in program.classes.items():
            if member.link is not None:
                nodes = tuple(number for number, (key, _) in classes if key == kind)
                yield WrittenLink((*own, "classes", kind, "link"), member.link, nodes)
        first += len(classes)


def node_links(workload: Workload) -> tuple[Link, ...]:
    """Return the link of every node, by number, with its own draws."""
    names = workload.node_names()
    found = {
        number: drawn_link(
            *(one.link,), node=names[number], seed=workload.seed, place=place, owner=one.owner
        )
        for one in written_links(workload)
        for place, number in enumerate(one.nodes)
    }
    return tuple(found[number] for number in range(len(names)))


def recorded_values(workload: Workload) -> Iterator[RecordedValue]:
    """Yield all rates and delays of links that follow recordings."""
    for one in written_links(workload):
        yield from (RecordedValue(one, *value) for value in recordings_of(one.link))


def node_followings(workload: Workload, locate: Locate) -> list[Following]:
    """Return the recordings of all nodes' links, by the nodes' numbers.

    Raises:
        OSError, InvalidLine: a file has changed since ``with_link_means``.
    """
    names, found = workload.node_names(), list[Following]()
    for one in recorded_values(workload):
        trace = one.read(locate)
        for number in one.written.nodes:
            offset = offset_of(one.recording, trace, names[number], seed=workload.seed)
            found.append(Following(number, one.direction, one.what, trace, offset))
    return found


def with_link_means(
    workload: Workload, document: Document, locate: Locate | None
) -> tuple[Workload, list[Problem]]:
    """Set every recording's mean as its rate or delay, as ``traces.with_means`` does."""
    problems = list[Problem]()
    for one in recorded_values(workload):
        shape = getattr(one.written.link, one.direction)
        if locate is None and getattr(shape, one.what) is not None:
            continue  # already set in a run's own scenario
        try:
            trace = one.read(locate)
        except (InvalidLine, UnicodeDecodeError, OSError) as error:
            problems.append(unreadable(one.recording, error, document, one.path))
            continue
        told = one.direction, one.what, one.recording
        found = unfit(one.written.link, *told, trace=trace, time_scale=1.0)
        problems += [problem_at(document, one.path, *problem) for problem in found]
        workload = replaced(workload, one.path, quantity(one.what, trace.mean()))
    return workload, problems


def with_link_tables(
    workload: Workload, document: Document, locate: Locate | None
) -> tuple[Workload, list[Problem]]:
    """Fill in the columns of tables, and their means, as ``costs.with_tables`` does."""
    problems = list[Problem]()
    for one, way, what, table in _tables(workload):
        if locate is None and table.values:
            continue
        path, kind = (*one.path, way, what), KINDS[what]
        keys = (*path, "table")
        found = read_table(table, kind, len(one.nodes), locate, document=document, keys=keys)
        if isinstance(found, Problem):
            problems.append(found)
            continue
        filled = table.model_copy(update={"values": found})
        workload = replaced(workload, (*path[:-1], f"{what}_table"), filled)
        workload = replaced(workload, path, mean_of(found, kind))
    return workload, problems


def _tables(workload: Workload) -> Iterator[tuple[WrittenLink, str, str, Table]]:
    for one, way, what in product(written_links(workload), ("up", "down"), TRACED):
        table = getattr(getattr(one.link, way), f"{what}_table")
        if table is not None:
            yield one, way, what, table


def own_files(workload: Workload) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield path and name of each recording and table, of links and of presence."""
    for one in recorded_values(workload):
        yield (*one.path[:-1], f"{one.what}_trace", "trace"), one.recording.trace
    for written, way, what, table in _tables(workload):
        yield (*written.path, way, f"{what}_table", "file"), table.file
    for path, attendance in attendances(workload):
        if isinstance(attendance, Recording):
            yield (*path, "trace"), attendance.trace


def with_own_files(workload: Workload, copy: Callable[[str, str], str]) -> Workload:
    """Return a workload that names what ``copy`` returns for each such file and its path."""
    for path, name in own_files(workload):
        workload = replaced(workload, path, copy(name, dotted(path)))
    return workload
