"""From a link in a scenario, which speaks of emulated time, to what the kernel is asked for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from testbed import faults
from testbed.faults.link import Change
from testbed.scenario.commands import BROKER, feeders
from testbed.scenario.direction import Direction, Link
from testbed.scenario.schema import Scenario
from testbed.topology import LinkSpec, Shape
from testbed.values.units import Duration, Rate


def link_spec(link: Link, *, address: str, mac: str, time_scale: float, seed: int = 0) -> LinkSpec:
    """A node's link in real units: rates times ``time_scale``, durations divided by it."""
    up, down = (shape_of(direction, time_scale) for direction in (link.up, link.down))
    return LinkSpec(address=address, mac=mac, up=up, down=down, seed=seed)


def shape_of(direction: Direction, time_scale: float) -> Shape:
    """One direction in real units."""
    rate = direction.rate
    return Shape(
        rate=None if rate is None else Rate(rate * time_scale),
        delay=_real(direction.delay, time_scale),
        jitter=_real(direction.jitter, time_scale),
        loss=direction.loss,
        queue=_real(direction.queue, time_scale),
        distribution=direction.distribution or "normal",
        loss_correlation=direction.loss_correlation,
    )


def changed(shape: Shape, change: Change, time_scale: float) -> Shape:
    """A direction in real units with what a fault changes in it."""
    rate, delay = change.rate, change.delay
    return replace(
        shape,
        rate=shape.rate if rate is None else Rate(rate * time_scale),
        delay=shape.delay if delay is None else _real(delay, time_scale),
    )


def links_after(
    scenario: Scenario, fault: faults.ChangedLink, place: int
) -> Iterator[tuple[str, str, LinkSpec]]:
    """What a fault makes of links: of one worker of every class that it strikes, or of each node.

    Yields:
        The node, whose the link is (``class slow``, ``broker``), and the link.
    """
    classes, others, scale = scenario.workers.dealt(), feeders(scenario), scenario.time_scale
    links: dict[str, tuple[str, Link]] = {}
    for number in fault.struck(classes, seed=scenario.seed, place=place, others=others):
        if number < len(classes):
            link = scenario.workers.classes[classes[number]].link
            links.setdefault(f"class {classes[number]}", (f"w{number}", link))
        else:
            name = others[number - len(classes)]
            links[name] = name, link_of_feeder(scenario, name)
    for whose, (node, link) in links.items():
        own = link_spec(link, address="", mac="", time_scale=scale)
        up, down = changed(own.up, fault.up, scale), changed(own.down, fault.down, scale)
        yield node, whose, replace(own, up=up, down=down)


def link_of_feeder(scenario: Scenario, name: str) -> Link:
    """The link of a producer or a broker: the streams' is of whom devices get samples from."""
    streams = scenario.streams
    assert streams is not None, "they feed streams"
    return Link() if streams.has_broker and name != BROKER else streams.link


def changed_links(scenario: Scenario) -> Iterator[tuple[str, str, LinkSpec]]:
    """All that faults make of links; see ``links_after``."""
    for place, fault in enumerate(scenario.faults):
        if isinstance(fault, faults.ChangedLink):
            yield from links_after(scenario, fault, place)


def direction_of(shape: Shape, time_scale: float) -> Direction:
    """The direction of a scenario that ``shape_of`` makes this of."""

    def emulated(real: Duration | None) -> Duration | None:
        return None if real is None else Duration(real * time_scale)

    return Direction(
        rate=None if shape.rate is None else Rate(shape.rate / time_scale),
        delay=emulated(shape.delay),
        jitter=emulated(shape.jitter),
        loss=shape.loss,
        queue=emulated(shape.queue),
        distribution=shape.distribution if shape.jitter else None,
        loss_correlation=shape.loss_correlation,
    )


def _real(emulated: Duration | None, time_scale: float) -> Duration | None:
    return None if emulated is None else Duration(emulated / time_scale)
