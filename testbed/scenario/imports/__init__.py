"""Topology files of other tools, read as workloads: a file per format.

A new format belongs in a file of its own, with a function that returns a ``Topology``, and in
``READERS``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from testbed.errors import ScenarioError
from testbed.scenario.dump import dump_data
from testbed.scenario.imports.containerlab import read_containerlab
from testbed.scenario.imports.fogify import read_fogify
from testbed.scenario.imports.kollaps import read_kollaps
from testbed.scenario.imports.topology import Topology
from testbed.scenario.load_workload import load_any_document
from testbed.scenario.parse import parse_document
from testbed.scenario.source import display_name, read_text

READERS: Mapping[str, Callable[[str, str, str], Topology]] = {
    "containerlab": read_containerlab,
    "fogify": read_fogify,
    "kollaps": read_kollaps,
}
"""The formats: each reads a text, given the name of its file and of the scenario."""


def import_topology(kind: str, path: Path, *, name: str) -> tuple[str, list[str]]:
    """Convert a topology file to a scenario.

    Args:
        kind: one of READERS.
        path: the file.
        name: name of the scenario.

    Returns:
        The scenario, which is valid; and a line for everything that it does not have.

    Raises:
        ScenarioError: the file, or the scenario, is not valid; names the line.
    """
    found = READERS[kind](read_text(path), display_name(path), name)
    text = dump_data(found.scenario(name), f"{name}.yaml")
    try:
        load_any_document(parse_document(text, found.file), lambda file: path.parent / file)
    except ScenarioError as error:  # the lines are those of a file that is not written
        raise ScenarioError([replace(one, line=0) for one in error.problems]) from None
    notes = sorted(dict.fromkeys(found.notes), key=lambda note: note[0])
    return text, [f"{found.file}:{line}: {note}" for line, note in notes]
