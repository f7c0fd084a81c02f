"""Fogify's models: a Compose file with services, and ``x-fogify`` with networks, nodes, topology.

A blueprint of its topology is a service on a node with networks, whose ``uplink`` and ``downlink``
are the shapes of each node's own link.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from testbed.errors import InvalidValue, ScenarioError
from testbed.scenario.document import Document, Keys
from testbed.scenario.imports.lines import line_of, list_at, mapping_at
from testbed.scenario.imports.shapes import direction, size, words
from testbed.scenario.imports.topology import Edge, Topology
from testbed.scenario.parse import parse_document
from testbed.scenario.scalars import dotted

MODEL = "x-fogify"
PARTS = {"networks", "nodes", "topology"}
OF_SERVICE = {"image", "command", "entrypoint", "environment"}
OF_BLUEPRINT = {"node", "service", "label", "replicas", "networks"}
OF_WAY = {"bandwidth", "latency", "drop"}
OF_LATENCY = {"delay", "deviation", "distribution"}
LAWS = {"uniform": "uniform", "gaussian": "normal", "normal": "normal"} | {
    law: law for law in ("pareto", "paretonormal")
}
SWITCH = "core"


def read_fogify(text: str, file: str, name: str) -> Topology:
    """Read a model.

    Raises:
        ScenarioError: it is not YAML of this form; names the line.
    """
    model = _Model(parse_document(text, file, own_keys=True), Topology(file, name))
    model.read()
    return model.found


@dataclass(frozen=True)
class _Model:
    """A model, and what was found in it."""

    document: Document
    found: Topology

    def read(self) -> None:
        self.found.switches.add(SWITCH)
        self._note_others((MODEL,), PARTS, "the model")
        services = mapping_at(self.document, ("services",))
        blueprints = list_at(self.document, (MODEL, "topology"))
        if not blueprints:
            raise self._refuse((MODEL,), "no topology", "topology: [{service: NAME, ...}]")
        used = {
            self._add_blueprint((MODEL, "topology", number), services)
            for number in range(len(blueprints))
        }
        for service in sorted(services.keys() - used):
            line = line_of(self.document, ("services", service))
            self.found.note(line, f"the service {service} is in no topology: left out")

    def _add_blueprint(self, path: Keys, services: Collection[str]) -> str:
        """Add the nodes of a blueprint; return the name of its service."""
        blueprint = mapping_at(self.document, path)
        service = self._named((*path, "service"), services)
        name, line = str(blueprint.get("label") or service), line_of(self.document, path)
        self._note_others(path, OF_BLUEPRINT, name)
        self._note_others(("services", service), OF_SERVICE, f"the service {service}")
        settings = mapping_at(self.document, ("services", service))
        command = [*words(settings.get("entrypoint")), *words(settings.get("command"))]
        image = str(settings.get("image", ""))
        replicas = blueprint.get("replicas", 1)
        if not isinstance(replicas, int) or replicas < 1:
            raise self._refuse((*path, "replicas"), repr(replicas), "a whole number from 1")
        fields = {
            "environment": _environment(settings.get("environment") or {}),
            **(self._limits((*path, "node")) if "node" in blueprint else {}),
        }
        self.found.add_program(name, line, command, image=image, count=replicas, **fields)
        up, down = self._link((*path, "networks"), name)
        self.found.edges.append(Edge((name, SWITCH), up, down, line))
        return service

    def _limits(self, path: Keys) -> dict[str, Any]:
        """Return the limits of the node on which a service runs."""
        nodes = self._parts("nodes")
        name = self._named(path, nodes)
        at: Keys = (*nodes[name], "capabilities")
        self._note_others(at, {"processor", "memory"}, name)
        processor = mapping_at(self.document, (*at, "processor"))
        if "clock_speed" in processor:
            line = line_of(self.document, (*at, "processor", "clock_speed"))
            self.found.note(line, f"clock_speed of {name}: its cores are as fast as this host's")
        memory = mapping_at(self.document, at).get("memory")
        try:
            return {"cpu": processor.get("cores"), "memory": memory and size(memory)}
        except InvalidValue as error:
            raise self._refuse((*at, "memory"), error.found, error.expected) from None

    def _link(self, path: Keys, name: str) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return both directions of a node's link: those of its first network."""
        networks = list_at(self.document, path)
        names = [str(one.get("name") if isinstance(one, dict) else one) for one in networks]
        if names[1:]:
            left = ", ".join(names[1:])
            line = line_of(self.document, path)
            self.found.note(line, f"{name} is in one network only: {left} left out")
        if not names:
            return {}, {}
        at: Keys = (*path, 0)
        if not (isinstance(networks[0], dict) and networks[0].keys() & {"uplink", "downlink"}):
            known = self._parts("networks")
            if names[0] not in known:
                expected = f"a network: {', '.join(known) or 'there is none'}"
                raise self._refuse(at, names[0], expected)
            at = known[names[0]]
        self._note_others(at, {"name", "uplink", "downlink"}, f"the network {names[0]}")
        return self._way((*at, "uplink")), self._way((*at, "downlink"))

    def _way(self, path: Keys) -> dict[str, Any]:
        """Return the shape of one direction."""
        given = mapping_at(self.document, path)
        latency = given.get("latency")
        if isinstance(latency, dict):
            self._note_others((*path, "latency"), OF_LATENCY, f"a latency of an {path[-1]}")
        else:
            latency = {"delay": latency}
        self._note_others(path, OF_WAY, f"an {path[-1]}")
        try:
            shape = direction(
                bandwidth=given.get("bandwidth"),
                delay=latency.get("delay"),
                jitter=latency.get("deviation"),
                loss=given.get("drop"),
            )
        except InvalidValue as error:
            raise self._refuse(path, error.found, error.expected) from None
        law = latency.get("distribution")
        if "jitter" in shape and law is not None:
            if str(law) not in LAWS:
                raise self._refuse(path, f"the distribution {law}", f"one of {', '.join(LAWS)}")
            shape["distribution"] = LAWS[str(law)]
        return shape

    def _parts(self, part: str) -> dict[str, Keys]:
        """Return where the entries of a part of the model are, by name."""
        at: Keys = (MODEL, part)
        numbers = range(len(list_at(self.document, at)))
        return {str(mapping_at(self.document, (*at, n)).get("name")): (*at, n) for n in numbers}

    def _named(self, path: Keys, known: Collection[str]) -> str:
        """Return the name at a path, which must be one of the ``known``."""
        name = str(self.document.at(path))
        if name not in known:
            expected = f"a {path[-1]}: {', '.join(known) or 'there is none'}"
            raise self._refuse(path, name, expected)
        return name

    def _note_others(self, path: Keys, known: Collection[str], owner: str) -> None:
        """Note the keys of a mapping that are not among the ``known``."""
        for key in mapping_at(self.document, path):
            if key not in known:
                line = line_of(self.document, (*path, key))
                self.found.note(line, f"{key} of {owner}: no counterpart")

    def _refuse(self, path: Keys, found: str, expected: str) -> ScenarioError:
        return self.found.refuse(line_of(self.document, path), dotted(path), found, expected)


def _environment(given: Any) -> dict[str, str]:
    """Return variables that are written as a mapping, or as a list of ``NAME=VALUE``."""
    if isinstance(given, dict):
        return {key: str(value) for key, value in given.items()}
    return {key: value for key, _, value in (str(one).partition("=") for one in given)}
