"""The links of a workload's nodes, and the files that it names."""

from __future__ import annotations

from collections.abc import Callable

from testbed.scenario.devices import drawn_link
from testbed.scenario.direction import Link
from testbed.scenario.own_code import names_of
from testbed.scenario.scalars import dotted
from testbed.scenario.traces import written_links
from testbed.scenario.workload import Workload
from testbed.values.fields import replaced


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


def with_own_files(workload: Workload, copy: Callable[[str, str], str]) -> Workload:
    """Return a workload that names what ``copy`` returns for each recording or table at a path."""
    for path, name in names_of(workload).items():
        workload = replaced(workload, [str(key) for key in path], copy(name, dotted(path)))
    return workload
