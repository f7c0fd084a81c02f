"""The links of a workload's nodes, and the files that links and presence name."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from testbed.scenario.costs import table_fields
from testbed.scenario.devices import drawn_link
from testbed.scenario.direction import Link, Recording
from testbed.scenario.scalars import dotted
from testbed.scenario.traces import followings, recorded_values, written_links
from testbed.scenario.workload import Workload
from testbed.scenario.workload_availability import attendances
from testbed.values.fields import replaced

node_followings = followings


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


def own_files(workload: Workload) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield path and name of each recording and table, of links and of presence."""
    for one in recorded_values(workload):
        yield (*one.path[:-1], f"{one.what}_trace", "trace"), one.recording.trace
    for field in table_fields(workload):
        yield (*field.path[:-1], f"{field.path[-1]}_table", "file"), field.table.file
    for path, attendance in attendances(workload):
        if isinstance(attendance, Recording):
            yield (*path, "trace"), attendance.trace


def with_own_files(workload: Workload, copy: Callable[[str, str], str]) -> Workload:
    """Return a workload that names what ``copy`` returns for each such file and its path."""
    for path, name in own_files(workload):
        workload = replaced(workload, path, copy(name, dotted(path)))
    return workload
