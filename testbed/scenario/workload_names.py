"""The nodes of a workload by name, and what stands for them in commands and environments."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from testbed.faults.population import Availability
from testbed.faults.timeline import Timeline
from testbed.scenario.workload import Program, Workload

INDEX, COUNT, SEED, PORT, HOSTS = "index", "count", "seed", "port", "hosts"
RESERVED = (INDEX, COUNT, SEED, PORT, HOSTS)
"""Names in braces that stand for no node."""

_BRACES = re.compile(r"\{(\{[a-z0-9_-]+(?::[A-Za-z0-9_-]+)?\})\}|\{([a-z0-9_-]+)(?::([\w-]+))?\}")


@dataclass(frozen=True)
class Placed:
    """A node of a workload: the program it runs, and its number among the program's nodes."""

    name: str
    program: str
    index: int


def placed(workload: Workload) -> tuple[Placed, ...]:
    """Return the nodes, in the order of their numbers on the switch."""
    return tuple(
        Placed(node, name, index)
        for name, program in workload.workload.items()
        for index, node in enumerate(program.node_names(name))
    )


def workload_timeline(workload: Workload, availabilities: Sequence[Availability] = ()) -> Timeline:
    """Return which fault has which targets when: all nodes are possible targets.

    Args:
        workload: the scenario.
        availabilities: of the nodes that are not always present.
    """
    timeline = Timeline.of(
        workload.faults,
        (),
        seed=workload.seed,
        availabilities=availabilities,
        others=workload.node_names(),
    )
    timeline.lower = frozenset(  # a loss, too, is what the scenario says
        name for name, metric in workload.metrics.items() if metric.better == "lower"
    )
    return timeline


def in_braces(text: str) -> Iterator[tuple[str, str]]:
    """Yield the names in braces, each with the port behind its colon; empty for none."""
    for found in _BRACES.finditer(text):
        if found[2]:
            yield found[2], found[3] or ""


def fill(text: str, own: Placed, workload: Workload, addresses: Mapping[str, str]) -> str:
    """Replace what is in braces in a word of a command; doubled braces become plain ones.

    Args:
        text: the word.
        own: the node whose command it is.
        workload: the scenario.
        addresses: IPv4 addresses of all nodes, by name.
    """
    program = workload.workload[own.program]
    programs = {one.name: workload.workload[one.program] for one in placed(workload)}

    numbers = {INDEX: own.index, COUNT: program.count, SEED: workload.seed}

    def replace(found: re.Match[str]) -> str:
        plain, name, port = found.groups()
        if plain:
            return str(plain)
        if name in numbers:
            return str(numbers[name])
        if name == PORT:
            return str(program.ports[port])
        if name == HOSTS:
            return ",".join(workload.workload[port].node_names(port))
        return f"{addresses[name]}:{port_of(programs[name], port)}" if port else addresses[name]

    return _BRACES.sub(replace, text)


def port_of(program: Program, port: str | int) -> int:
    """Return the number of a program's port, given as a name or a number.

    Raises:
        KeyError: the program has no port of that name.
    """
    if isinstance(port, int):
        return port
    return int(port) if port.isdigit() else program.ports[port]
