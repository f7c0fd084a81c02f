"""Containerlab's topology files: YAML with nodes, kinds, and links between interfaces.

Impairments are not in these files: ``containerlab tools netem set`` sets them on a running lab.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from testbed.errors import InvalidValue
from testbed.scenario.document import Document, Keys
from testbed.scenario.imports.lines import line_of, list_at, mapping_at
from testbed.scenario.imports.shapes import size, words
from testbed.scenario.imports.topology import Edge, Topology
from testbed.scenario.parse import parse_document
from testbed.values.topology import LARGEST_MTU, LEAST_MTU

HOST = {"linux", ""}
BRIDGES = {"bridge", "ovs-bridge"}
OUTSIDE = {"host", "mgmt-net", "macvlan", "vxlan", "vxlan-stitch", "dummy"}
"""Kinds of nodes, and ends of links, that are not in the lab."""

USED = {"kind", "image", "cmd", "entrypoint", "env", "cpu", "memory", "cpu-set", "group"}
OF_LAB = {"name", "topology", "prefix"}
OF_TOPOLOGY = {"defaults", "kinds", "groups", "nodes", "links"}
LINKS: Keys = ("topology", "links")
NODES: Keys = ("topology", "nodes")


def read_containerlab(text: str, file: str, name: str) -> Topology:
    """Read a lab.

    Raises:
        ScenarioError: it is not YAML of this form; names the line.
    """
    document = parse_document(text, file)
    data = document.data
    found = Topology(file, str(data.get("name") or name))
    topology = mapping_at(document, ("topology",))
    if not mapping_at(document, NODES):
        line = line_of(document, NODES)
        raise found.refuse(line, "topology.nodes", "no nodes", "nodes: {NAME: {kind: linux}}")
    for key in sorted(data.keys() - OF_LAB):
        found.note(line_of(document, (key,)), f"{key}: no counterpart")
    for key in sorted(topology.keys() - OF_TOPOLOGY):
        found.note(line_of(document, ("topology", key)), f"{key}: no counterpart")
    for node in topology["nodes"]:
        _add_node(node, document, found)
    for number, _ in enumerate(list_at(document, LINKS)):
        path: Keys = (*LINKS, number)
        ends = list(_ends(list_at(document, (*path, "endpoints"))))
        _add_link(mapping_at(document, path), ends, line_of(document, path), found)
    return found


def _settings(name: str, document: Document) -> dict[str, Any]:
    """Return the settings of a node: its own, over those of its group, kind and all nodes."""

    def at(*path: str) -> dict[str, Any]:
        return mapping_at(document, ("topology", *path))

    own, defaults = at("nodes", name), at("defaults")
    group = str(own.get("group") or defaults.get("group") or "")
    kind = own.get("kind") or at("groups", group).get("kind") or defaults.get("kind") or ""
    layers = (("defaults",), ("kinds", str(kind)), ("groups", group), ("nodes", name))
    environment = {key: value for one in layers for key, value in at(*one, "env").items()}
    merged = {key: value for one in layers for key, value in at(*one).items()}
    return {**merged, "kind": str(kind), "env": environment}


def _add_node(name: str, document: Document, found: Topology) -> None:
    line, given = line_of(document, (*NODES, name)), _settings(name, document)
    kind, image = given["kind"], str(given.get("image", ""))
    if kind in OUTSIDE:
        found.note(line, f"{name} is of kind {kind}: left out, nodes reach nothing outside a run")
        found.outside.add(name)
        return
    if kind in BRIDGES:
        found.switches.add(name)
        return
    for key in sorted(given.keys() - USED):
        place = line_of(document, (*NODES, name, key))
        found.note(place, f"{key} of {name}: no counterpart")
    if kind not in HOST:
        found.note(line, f"{name} is a plain switch: the {kind} and its configuration do not run")
        found.switches.add(name)
        return
    command = [*words(given.get("entrypoint")), *words(given.get("cmd"))]
    try:
        memory = size(given["memory"]) if "memory" in given else None
    except InvalidValue as error:
        raise found.refuse(line, f"{name}.memory", error.found, error.expected) from None
    found.add_program(
        *(name, line, command),
        image=image,
        cpu=given.get("cpu"),
        cpuset=given.get("cpu-set") and str(given["cpu-set"]),
        memory=memory,
        environment={key: str(value) for key, value in given["env"].items()},
    )


def _add_link(link: Mapping[str, Any], ends: Sequence[str], line: int, found: Topology) -> None:
    kind = link.get("type", "veth")
    if kind != "veth":
        found.note(line, f"a link of type {kind}: left out, nodes reach nothing outside a run")
        return
    if len(ends) != 2:
        expected = "endpoints: [NODE:eth1, NODE:eth1]"
        raise found.refuse(line, "topology.links", f"{len(ends)} endpoints", expected)
    for key in sorted(link.keys() - {"type", "endpoints", "mtu"}):
        found.note(line, f"{key} of a link: no counterpart")
    for end in ends:
        if end in OUTSIDE or end in found.outside:
            found.note(line, f"a link to {end}: left out, nodes reach nothing outside a run")
            return
    mtu = link.get("mtu")
    if mtu is not None and not (isinstance(mtu, int) and LEAST_MTU <= mtu <= LARGEST_MTU):
        found.note(line, f"mtu {mtu}: left out, it can be {LEAST_MTU} to {LARGEST_MTU}")
        mtu = None
    found.add_edge(Edge((ends[0], ends[1]), {}, {}, line, mtu), "topology.links", "a node")


def _ends(endpoints: Iterable[Any]) -> Iterator[str]:
    """Yield the nodes of a link, written ``NODE:INTERFACE`` or as a mapping."""
    for end in endpoints:
        yield str(end.get("node", "")) if isinstance(end, dict) else str(end).split(":")[0]
