"""Checks of a workload's links: their shapes, and paths between the switches."""

from __future__ import annotations

from collections.abc import Iterator

from testbed.network.paths import next_trunks
from testbed.scenario.direction import Link
from testbed.scenario.document import Finding, Keys
from testbed.scenario.links import link_spec, unshapable
from testbed.scenario.traces import written_links
from testbed.scenario.workload import Program, Workload
from testbed.scenario.workload_links import node_links
from testbed.values.topology import CORE, DEFAULT_MTU, Trunk

LINKS = "links"


def check_links(workload: Workload) -> Iterator[Finding]:
    """Check the links of nodes and between switches."""
    nodes = list(_links_of_nodes(workload))
    for place, link in nodes:
        yield from _check_shape(place, link)
    largest = max((link.mtu or DEFAULT_MTU for _, link in nodes), default=DEFAULT_MTU)
    names = set(workload.node_names())
    pairs: dict[frozenset[str], str] = {}
    for name, link in workload.links.items():
        path: Keys = (LINKS, name)
        yield from _check_shape(path, link)
        yield from _check_fixed(path, link)
        if name in names:
            yield path, name, "another name: a node has this one"
        if link.mtu is not None and link.mtu < largest:
            expected = f"at least {largest}, the largest of any node: a switch splits no packets"
            yield (*path, "mtu"), f"{link.mtu}", expected
        if (other := pairs.setdefault(frozenset(link.ends), name)) != name:
            found = f"a second link of {' and '.join(link.ends)}, after {other}"
            yield (*path, "between"), found, "at most one link between two switches"
    yield from _check_switches(workload)


def _check_switches(workload: Workload) -> Iterator[Finding]:
    """Check that the nodes' switches exist, and that there is a path between any two of them."""
    trunks = [
        Trunk(name, link.ends, link_spec(link, address="", mac="", time_scale=1.0))
        for name, link in workload.links.items()
    ]
    known = dict.fromkeys((CORE, *(end for trunk in trunks for end in trunk.ends)))
    used = list(_switches(workload))
    first = used[0][1]
    reached = {first, *next_trunks(trunks, first)}
    for path, name in used:
        if name not in known:
            yield path, name, f"{CORE}, or a switch that a link leads to: {', '.join(known)}"
        elif first in known and name not in reached:
            expected = f"a path of `links` to {first}, on which other nodes are"
            yield path, f"the switch {name} without a path to {first}", expected


def _switches(workload: Workload) -> Iterator[tuple[Keys, str]]:
    """Yield the switches of all classes, each where it is written."""
    for name, program in workload.workload.items():
        own: Keys = ("workload", name)
        for kind, one in program.classes.items():
            path = (*own, "classes", kind, "switch") if one.switch else (*own, "switch")
            yield path, one.switch or program.switch
        if not program.classes:
            yield (*own, "switch"), program.switch


def _links_of_nodes(workload: Workload) -> Iterator[tuple[Keys, Link]]:
    for name, program in workload.workload.items():
        yield from _links_of(program, ("workload", name))


def _links_of(program: Program, path: Keys) -> Iterator[tuple[Keys, Link]]:
    yield (*path, "link"), program.link
    for name, one in program.classes.items():
        if one.link is not None:
            yield (*path, "classes", name, "link"), one.link


def check_node_links(workload: Workload) -> Iterator[Finding]:
    """Check that the kernel can shape what was drawn, or read from a table, for each node."""
    names, links = workload.node_names(), node_links(workload)
    for one in written_links(workload):
        for number in one.nodes if one.link.up.differs or one.link.down.differs else ():
            spec = link_spec(links[number], address="", mac="", time_scale=1.0)
            for way, reason in unshapable(spec):
                yield (*one.path, way), "", "", f"{names[number]}: {reason}"


def _check_shape(path: Keys, link: Link) -> Iterator[Finding]:
    """Check that the kernel can shape it."""
    for direction, reason in unshapable(link_spec(link, address="", mac="", time_scale=1.0)):
        yield (*path, direction), "", "", reason


def _check_fixed(path: Keys, link: Link) -> Iterator[Finding]:
    """Check that no rate or delay is written as anything but a value."""
    for direction in ("up", "down"):
        for field in ("rate", "delay"):
            for other in getattr(link, direction).origins(field):
                found = f"a {field} by `{other.rpartition('_')[2]}`"
                expected = "a value: links between switches have fixed shapes"
                yield (*path, direction, field), found, expected
