"""Kollaps' experiments: XML with services, bridges, links and dynamic events.

An element's ``upload`` is from ``origin`` to ``dest``; latency and jitter are milliseconds in each
direction, and ``drop`` is a share of 1. Kollaps, too, takes the paths with the fewest links.
"""

from __future__ import annotations

import ast
import shlex
from dataclasses import dataclass
from xml.parsers import expat

from testbed.errors import InvalidValue, Problem, ScenarioError
from testbed.scenario.imports.shapes import direction
from testbed.scenario.imports.topology import Edge, Topology

KNOWN = {
    "experiment": {"boot"},
    "service": {"name", "image", "command", "replicas", "share", "supervisor", "port"},
    "bridge": {"name"},
    "link": {"origin", "dest", "latency", "jitter", "drop", "upload", "download", "network"},
    "schedule": {
        *("name", "time", "action", "amount"),
        *("origin", "dest", "upload", "download", "latency", "jitter", "drop"),
    },
}
"""The attributes of each element that mean something here."""

SECTIONS = ("services", "bridges", "links", "dynamic")
FAULTS = {"crash": "kill", "leave": "kill"}


@dataclass(frozen=True)
class Element:
    """An XML element with its line."""

    tag: str
    attributes: dict[str, str]
    line: int


def read_kollaps(text: str, file: str, name: str) -> Topology:
    """Read an experiment.

    Raises:
        ScenarioError: it is not XML of this form; names the line.
    """
    found = Topology(file, name)
    elements = _elements(text, file)
    if elements[0].tag != "experiment":
        raise found.refuse(elements[0].line, "", f"<{elements[0].tag}>", "<experiment>")
    joined = _joined(elements, found)
    for one in elements:
        if one.tag not in KNOWN and one.tag not in SECTIONS:
            found.note(one.line, f"<{one.tag}>: no counterpart")
            continue
        for key in sorted(one.attributes.keys() - KNOWN.get(one.tag, set())):
            found.note(one.line, f"{key}={one.attributes[key]!r} of a {one.tag}: no counterpart")
        match one.tag:
            case "service":
                _add_service(one, found, joined)
            case "bridge":
                found.switches.add(_value(one, "name", found))
    for one in elements:
        if one.tag == "link":
            _add_link(one, found)
        elif one.tag == "schedule":
            _add_event(one, found)
    return found


def _elements(text: str, file: str) -> list[Element]:
    """Return all elements in order; entities and document types are refused."""
    elements: list[Element] = []
    parser = expat.ParserCreate()

    def begin(tag: str, attributes: dict[str, str]) -> None:
        elements.append(Element(tag, attributes, parser.CurrentLineNumber))

    def refuse(*_: object) -> None:
        problem = Problem(file, parser.CurrentLineNumber, "", "a document type", "<experiment>")
        raise ScenarioError([problem])

    parser.StartElementHandler = begin
    parser.StartDoctypeDeclHandler = refuse
    try:
        parser.Parse(text, True)
    except expat.ExpatError as error:
        found = expat.ErrorString(error.code)
        raise ScenarioError([Problem(file, error.lineno, "", found, "XML")]) from None
    return elements


def _value(one: Element, key: str, found: Topology) -> str:
    if not one.attributes.get(key):
        raise found.refuse(one.line, one.tag, f"no {key}", f"{key}=...")
    return one.attributes[key]


def _joined(elements: list[Element], found: Topology) -> dict[str, int]:
    """Return how many nodes of each service join at the beginning."""
    joined: dict[str, int] = {}
    for one in elements:
        if one.attributes.get("action") == "join" and _time(one, found) == 0:
            name = _value(one, "name", found)
            joined[name] = joined.get(name, 0) + _count(one, "amount", found)
    return joined


def _count(one: Element, key: str, found: Topology) -> int:
    text = one.attributes.get(key, "1")
    if not text.isdecimal() or not int(text):
        raise found.refuse(one.line, f"{one.tag}.{key}", repr(text), "a whole number from 1")
    return int(text)


def _time(one: Element, found: Topology) -> float:
    text = one.attributes.get("time", "")
    try:
        return float(text)
    except ValueError:
        raise found.refuse(one.line, "schedule.time", repr(text), "seconds, like 60.0") from None


def _add_service(one: Element, found: Topology, joined: dict[str, int]) -> None:
    name, image = _value(one, "name", found), one.attributes.get("image", "")
    if "supervisor" in one.attributes:
        found.note(one.line, f"{name} is Kollaps' dashboard: left out (use `testbed top`)")
        return
    given = one.attributes.get("command", "")
    if given:
        words = " ".join(shlex.quote(word) for word in _words(given))
        found.note(one.line, f"{name}: the image {image} got the arguments {words}")
    count = joined.get(name) or _count(one, "replicas", found)
    found.add_program(name, one.line, (), image=image, count=count)
    if one.attributes.get("share") == "true":
        found.shared.add(name)


def _words(command: str) -> list[str]:
    """Return the words of a command, which may be written as a Python list."""
    try:
        listed = ast.literal_eval(command)
    except (ValueError, SyntaxError):
        return command.split()
    return [str(word) for word in listed] if isinstance(listed, list | tuple) else [str(listed)]


def _add_link(one: Element, found: Topology) -> None:
    ends = (_value(one, "origin", found), _value(one, "dest", found))
    given = one.attributes
    delay, jitter, loss = (given.get(key) for key in ("latency", "jitter", "drop"))
    ways = []
    for key in ("upload", "download"):
        try:
            ways.append(direction(bandwidth=given.get(key), delay=delay, jitter=jitter, loss=loss))
        except InvalidValue as error:
            raise found.refuse(one.line, "link", error.found, error.expected) from None
    if "download" not in given:
        found.note(one.line, f"{ends[1]} to {ends[0]} has no link in Kollaps, and no rate here")
    found.add_edge(Edge(ends, ways[0], ways[1], one.line), "link", "a service or a bridge")


def _add_event(one: Element, found: Topology) -> None:
    """Add a crash as a fault; what joins at the beginning has been counted."""
    action, name = one.attributes.get("action", ""), one.attributes.get("name", "")
    at = _time(one, found)
    if action == "join" and at == 0:
        return
    if action not in FAULTS or name not in found.programs:
        what = action or "change of a link"
        found.note(one.line, f"the {what} at {at:g} s is left out: add a fault or a trace for it")
        return
    count = found.programs[name].get("count", 1)
    gone = min(_count(one, "amount", found), count)
    nodes = [str(number) if count > 1 else "" for number in range(gone)]
    found.faults.append((name, {FAULTS[action]: {"nodes": nodes, "at": {"time": f"{at:g}s"}}}))
