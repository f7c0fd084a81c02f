"""The names of nodes: whom a scenario has on the switch, and whom a program's command means."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from testbed.scenario.schema import Scenario

BROKER = "broker"
"""The node that a transport through a broker has."""

_NAME = re.compile(r"\{\{([a-z0-9_-]+)\}\}|\{([a-z0-9_-]+)\}")


def addressed(word: str) -> Iterator[str]:
    """The names of the nodes whose addresses a word of a command asks for."""
    return (found[2] for found in _NAME.finditer(word) if found[2])


def resolve(command: tuple[str, ...], addresses: Mapping[str, str]) -> tuple[str, ...]:
    """The command with addresses in place of names; doubled braces are plain ones.

    Args:
        command: as a scenario has it.
        addresses: of nodes, by name.
    """

    def replace(found: re.Match[str]) -> str:
        return addresses[found[2]] if found[2] else f"{{{found[1]}}}"

    return tuple(_NAME.sub(replace, word) for word in command)


def linked_nodes(scenario: Scenario) -> Mapping[str, int]:
    """The nodes on the switch by name, with their numbers there.

    The PS comes first, then the workers, the programs, the producers and their broker.
    """
    workers = (f"w{index}" for index in range(scenario.workers.count))
    names = ("ps", *workers, *scenario.programs, *feeders(scenario))
    return {name: number for number, name in enumerate(names)}


def feeders(scenario: Scenario) -> Sequence[str]:
    """The nodes that the samples of live streams come from: the producers, and a broker."""
    feeding, streams = producers(scenario), scenario.streams
    has_broker = feeding and streams is not None and streams.has_broker
    return (*feeding, BROKER) if has_broker else feeding


def restarts_feeders(scenario: Scenario) -> bool:
    """Whether those are started again at once when they have been killed."""
    streams = scenario.streams
    return streams is not None and streams.restarts


def producers(scenario: Scenario) -> Sequence[str]:
    """The nodes that produce live streams; number i of n feeds the workers i, i + n, i + 2 n ..."""
    streams, devices = scenario.streams, scenario.workers.count
    if streams is None or scenario.simulated:
        return ()
    count = streams.producer_count(devices, seed=scenario.seed, time_scale=scenario.time_scale)
    return [f"producer{index}" for index in range(count)]
