"""What a scenario's faults may ask for in vain: nodes, moments and links that cannot be so."""

from __future__ import annotations

from collections.abc import Iterator

from testbed.errors import Problem
from testbed.faults import ChangedLink, Kill
from testbed.faults.check import contradictions, rejoining
from testbed.network.offloads import needs_packets
from testbed.network.qdiscs import qdiscs_of
from testbed.scenario.commands import feeders, restarts_feeders
from testbed.scenario.document import Document, Keys, problem_at
from testbed.scenario.links import links_after
from testbed.scenario.scalars import display
from testbed.scenario.schema import Scenario
from testbed.scenario.traces import places
from testbed.topology import LinkSpec


def check_faults(scenario: Scenario, document: Document) -> Iterator[Problem]:
    """They strike nodes that are there, and can be beside one another."""
    classes, others = scenario.workers.dealt(), feeders(scenario)
    missing = list(_check_whom(scenario, document))
    if missing:
        yield from missing
        return
    if scenario.runtime.capabilities.engine:
        yield from _check_engine(scenario, document)
    restarted = restarts_feeders(scenario)
    for place, found in contradictions(
        scenario.faults, classes, seed=scenario.seed, others=others, restarted=restarted
    ):
        expected = "faults that can be beside one another"
        yield problem_at(document, ("faults", place), found=found, expected=expected)

    for place, fault in enumerate(scenario.faults):
        if isinstance(fault, ChangedLink):
            path = ("faults", place)
            numbers = fault.struck(classes, seed=scenario.seed, place=place)
            struck = {classes[one] for one in numbers}
            for name in sorted(struck.intersection(one.device_class for one in places(scenario))):
                found = f"a change of links of class {name}, which follow a recording"
                expected = "links that do not: a recording says all that becomes of one"
                yield problem_at(document, path, found=found, expected=expected)
            links = {whose: link for _, whose, link in links_after(scenario, fault, place)}
            for whose, link in links.items():
                yield from _check_link(scenario, document, path, link, whose)
            if scenario.network.offload == "on" and any(map(needs_packets, links.values())):
                expected = "`network: {offload: off}`: this link needs segmentation offloads off"
                yield problem_at(document, path, found="offload: on", expected=expected)


def _check_whom(scenario: Scenario, document: Document) -> Iterator[Problem]:
    """Every selector names somebody, and there are enough to draw from."""
    classes, others = scenario.workers.dealt(), feeders(scenario)
    of_workers = (
        f"a worker (w0 to w{len(classes) - 1}), a pattern like 'w[0-9]', or class=NAME "
        f"with a class of workers ({', '.join(scenario.workers.classes)})"
    )
    for place, fault in enumerate(scenario.faults):
        path = ("faults", place)
        key, expected = ("workers", of_workers) if fault.strikes_workers else _feeders(scenario)
        for selector in fault.nobody(classes, others):
            yield problem_at(document, (*path, key), found=display(selector), expected=expected)
        meant = len(fault.meant(classes, others))
        if fault.count is not None and fault.count > meant:
            expected = f"at most {meant:,}, as many as there are to draw from"
            found = f"{fault.count:,}"
            yield problem_at(document, (*path, "count"), found=found, expected=expected)


def _feeders(scenario: Scenario) -> tuple[str, str]:
    """The key of the nodes that feed streams, and what may stand there."""
    if scenario.streams is None:
        return "nodes", "none: without `streams` nothing feeds them"
    if scenario.simulated:
        return "nodes", "none: a simulation has neither producers nor a broker"
    return "nodes", f"some of {', '.join(feeders(scenario))}, or a pattern like 'producer*'"


def _check_engine(scenario: Scenario, document: Document) -> Iterator[Problem]:
    """Nobody comes back whose container has ended with its process."""
    for place, worker in rejoining(scenario.faults, scenario.workers.dealt(), seed=scenario.seed):
        expected = "a worker that was not there before: an engine's container has ended then"
        found = f"w{worker}, which was gone"
        yield problem_at(document, ("faults", place), found=found, expected=expected)
    for place, fault in enumerate(scenario.faults):
        if isinstance(fault, Kill) and fault.duration is not None:
            path = ("faults", place, "for")
            expected = "none: an engine's container has ended by then; kafka's `restart` is at once"
            yield problem_at(document, path, found=str(fault.duration), expected=expected)


def _check_link(
    scenario: Scenario, document: Document, path: Keys, link: LinkSpec, whose: str
) -> Iterator[Problem]:
    """A link that the kernel can have, as a fault makes it."""
    for direction, shape in (("up", link.up), ("down", link.down)):
        if shape.jitter is not None and shape.delay is not None and shape.jitter > shape.delay:
            found = f"a delay below the jitter of {whose}"
            expected = f"at least that, {shape.jitter * scenario.time_scale:g} s"
            place = (*path, direction, "delay")
            yield problem_at(document, place, found=found, expected=expected)
    try:
        qdiscs_of(link)
    except ValueError as error:
        direction, _, reason = str(error).partition(": ")
        hint = f"{whose}: {reason}"
        yield problem_at(document, (*path, direction), hint=hint)
