"""Where a scenario names files of the user's own: code, and recordings that something follows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import Any

from testbed.scenario.direction import TRACED
from testbed.scenario.document import Document, Keys, Node
from testbed.scenario.schema import Scenario

COPIES = "custom"
"""The folder of a run that has copies of them."""

_MEMBERS: Mapping[Keys, str] = {
    ("algorithm",): "custom",
    ("model",): "custom",
    ("dataset",): "custom",
    ("streams", "over_time"): "trace",
}
"""Families, and their member that is a file of the user's own."""


def own_names(document: Document) -> Iterator[tuple[Keys, str]]:
    """Every name of such a file and its path, in whichever form the document has it."""
    for path in _paths(document):
        name = document.at(path)
        if isinstance(name, str):
            yield path, name


def _paths(document: Document) -> Iterator[Keys]:
    for family, member in _MEMBERS.items():
        named = document.at((*family, "name")) == member
        yield (*family, "file") if named else (*family, member, "file")
    yield ("workers", "availability", "trace")
    classes = document.at(("workers", "classes"))
    for name in classes if isinstance(classes, dict) else ():
        for direction, what, form in product(("up", "down"), TRACED, ("", "_trace")):
            yield ("workers", "classes", name, "link", direction, f"{what}{form}", "trace")


def names_of(scenario: Scenario) -> dict[Keys, str]:
    """The files of the user's own that a scenario names, by their path in it."""
    return dict(own_names(Document(Node.of(_data(scenario)))))


def with_copies(scenario: Scenario) -> dict[str, Any]:
    """The scenario as plain data that names, in place of these files, a run's copies of them."""
    root = Node.of(_data(scenario))
    for path, name in names_of(scenario).items():
        root = root.with_value(path, f"{COPIES}/{Path(name).name}")
    data: dict[str, Any] = root.data
    return data


def _data(scenario: Scenario) -> dict[str, Any]:
    return scenario.model_dump(mode="json", by_alias=True, exclude_none=True)
