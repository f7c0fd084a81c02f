"""The nodes on the switch by name, and the kernel settings of their links."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from testbed import faults
from testbed.faults.kinds import LinkChange
from testbed.network.qdiscs import qdiscs_of
from testbed.scenario.devices import devices, differs
from testbed.scenario.direction import Link
from testbed.scenario.schema import Scenario
from testbed.values.topology import Direction, LinkSpec

BROKER = "broker"
"""Name of the broker node, if the transport uses a broker."""

_NAME = re.compile(r"\{\{([a-z0-9_-]+)\}\}|\{([a-z0-9_-]+)\}")


def addressed(word: str) -> Iterator[str]:
    """Yield the names of nodes in a word of a command, to be replaced by addresses."""
    return (found[2] for found in _NAME.finditer(word) if found[2])


def resolve(command: tuple[str, ...], addresses: Mapping[str, str]) -> tuple[str, ...]:
    """Replace names in a command by addresses; doubled braces become plain ones.

    Args:
        command: command of a scenario.
        addresses: addresses of nodes, by name.
    """

    def replace(found: re.Match[str]) -> str:
        return addresses[found[2]] if found[2] else f"{{{found[1]}}}"

    return tuple(_NAME.sub(replace, word) for word in command)


def linked_nodes(scenario: Scenario) -> Mapping[str, int]:
    """Return the nodes on the switch by name, with their numbers there.

    The PS comes first, then the workers, the programs, the producers and their broker.
    """
    workers = (f"w{index}" for index in range(scenario.workers.count))
    names = ("ps", *workers, *scenario.programs, *feeders(scenario))
    return {name: number for number, name in enumerate(names)}


def feeders(scenario: Scenario) -> Sequence[str]:
    """Return the nodes that deliver live streams: the producers, and a broker."""
    feeding, streams = producers(scenario), scenario.streams
    has_broker = feeding and streams is not None and streams.has_broker
    return (*feeding, BROKER) if has_broker else feeding


def restarts_feeders(scenario: Scenario) -> bool:
    """Whether killed feeders are restarted immediately."""
    streams = scenario.streams
    return streams is not None and streams.restarts


def producers(scenario: Scenario) -> Sequence[str]:
    """Return the producers of live streams; number i of n feeds workers i, i + n, i + 2 n ..."""
    streams, devices = scenario.streams, scenario.workers.count
    if streams is None or scenario.simulated:
        return ()
    count = streams.producer_count(devices, seed=scenario.seed, time_scale=scenario.time_scale)
    return [f"producer{index}" for index in range(count)]


def link_spec(link: Link, *, address: str, mac: str, time_scale: float, seed: int = 0) -> LinkSpec:
    """Convert a node's link to real units: rates times ``time_scale``, durations divided by it."""
    up, down = link.up.scaled(time_scale), link.down.scaled(time_scale)
    return LinkSpec(address=address, mac=mac, up=up, down=down, seed=seed, mtu=link.mtu)


def unshapable(link: LinkSpec) -> Iterator[tuple[str, str]]:
    """Yield the direction that the kernel cannot shape, and why."""
    try:
        qdiscs_of(link)
    except ValueError as error:
        direction, _, reason = str(error).partition(": ")
        yield direction, reason


def changed(direction: Direction, change: LinkChange, time_scale: float) -> Direction:
    """Apply a fault's change to a direction in real units."""
    values = Direction(rate=change.rate, delay=change.delay).scaled(time_scale)
    return direction.changed(**{name: value for name, value in values if value is not None})


def links_after(
    scenario: Scenario, fault: faults.ChangedLink, place: int
) -> Iterator[tuple[str, str, LinkSpec]]:
    """Yield the links changed by a fault: of one worker per affected class, and of other nodes.

    Yields:
        The node, the link's owner (``class slow``, ``broker``), and the link.
    """
    classes, others, scale = (
        scenario.workers.worker_classes(),
        feeders(scenario),
        scenario.time_scale,
    )
    links: dict[str, tuple[str, Link]] = {}
    own = devices(scenario)
    for number in fault.pick_targets(classes, seed=scenario.seed, place=place, others=others):
        if number < len(classes):
            alike = not differs(scenario.workers.classes[classes[number]])
            whose = f"class {classes[number]}" if alike else f"w{number}"
            links.setdefault(whose, (f"w{number}", own[number].link))
        else:
            name = others[number - len(classes)]
            links[name] = name, link_of_feeder(scenario, name)
    for whose, (node, link) in links.items():
        spec = link_spec(link, address="", mac="", time_scale=scale)
        up, down = changed(spec.up, fault.up, scale), changed(spec.down, fault.down, scale)
        yield node, whose, replace(spec, up=up, down=down)


def link_of_feeder(scenario: Scenario, name: str) -> Link:
    """Return the link of a feeder: the streams' link is that of the node devices fetch from."""
    streams = scenario.streams
    assert streams is not None, "only streams have feeders"
    return Link() if streams.has_broker and name != BROKER else streams.link


def changed_links(scenario: Scenario) -> Iterator[tuple[str, str, LinkSpec]]:
    """Yield all links changed by faults; see ``links_after``."""
    for place, fault in enumerate(scenario.faults):
        if isinstance(fault, faults.ChangedLink):
            yield from links_after(scenario, fault, place)
