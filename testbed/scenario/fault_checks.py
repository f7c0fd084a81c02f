"""Checks of links and devices, and of the faults that change them."""

from __future__ import annotations

from collections.abc import Iterator

from testbed.faults import ChangedLink, Kill
from testbed.faults.base import TimedFault
from testbed.faults.check import contradictions, rejoining
from testbed.network.offloads import needs_packets
from testbed.scenario.devices import devices, differs
from testbed.scenario.direction import Link
from testbed.scenario.document import Finding, Keys
from testbed.scenario.links import feeders, link_spec, links_after, restarts_feeders, unshapable
from testbed.scenario.scalars import display
from testbed.scenario.schema import Scenario
from testbed.scenario.traces import recorded_values
from testbed.values.topology import LinkSpec


def check_links(scenario: Scenario) -> Iterator[Finding]:
    """Check that the kernel can create the links."""
    links: dict[Keys, Link] = {("ps", "link"): scenario.ps.link}
    for name, member in scenario.workers.classes.items():
        links["workers", "classes", name, "link"] = member.link
    for name, program in scenario.programs.items():
        links[("programs", name, "link")] = program.link
    for path, link in links.items():
        spec = link_spec(link, address="", mac="", time_scale=scenario.time_scale)
        for direction, reason in unshapable(spec):
            yield (*path, direction), "", "", reason
    yield from check_device_links(scenario)


def check_device_links(scenario: Scenario) -> Iterator[Finding]:
    """Check that the kernel can create the links that were drawn or read for each device."""
    own = {name for name, member in scenario.workers.classes.items() if differs(member)}
    for one in devices(scenario) if own else ():
        if one.device_class not in own:
            continue
        path: Keys = ("workers", "classes", one.device_class, "link")
        for way, shape in (("up", one.link.up), ("down", one.link.down)):
            if shape.jitter is not None and shape.delay is not None and shape.jitter > shape.delay:
                found = f"a delay of {shape.delay} for w{one.worker}"
                yield (*path, way), found, f"at least the jitter, {shape.jitter}"
        if scenario.simulated:
            continue
        spec = link_spec(one.link, address="", mac="", time_scale=scenario.time_scale)
        for way, reason in unshapable(spec):
            yield (*path, way), "", "", f"w{one.worker}: {reason}"


def check_deal(scenario: Scenario) -> Iterator[Finding]:
    """Check that the devices have speeds by which data can be dealt."""
    classes = scenario.workers.classes.items()
    without = [name for name, member in classes if member.speed is None]
    if scenario.workers.deal is not None and without:
        expected = f"a `speed` for every class: the devices of {without[0]} have none"
        yield ("workers", "deal"), "shares dealt by speed", expected


def check_faults(scenario: Scenario) -> Iterator[Finding]:
    """Check that faults target existing nodes, and do not contradict one another."""
    classes, others = scenario.workers.worker_classes(), feeders(scenario)
    missing = list(_check_targets(scenario))
    if missing:
        yield from missing
        return
    for place, fault in enumerate(scenario.faults):
        if isinstance(fault, TimedFault) and fault.at.log is not None:
            expected = "a time, a version or an accuracy: only nodes of a workload print lines"
            yield ("faults", place, "at"), str(fault.at), expected
        if isinstance(fault, TimedFault) and fault.end_trigger is not None:
            expected = "`for`: only faults of a workload's nodes end at a line or a metric"
            yield ("faults", place, "until"), str(fault.end_trigger), expected
    if scenario.runtime.capabilities.engine:
        yield from _check_engine(scenario)
    restarted = restarts_feeders(scenario)
    for place, found in contradictions(
        scenario.faults, classes, seed=scenario.seed, others=others, restarted=restarted
    ):
        expected = "faults that do not contradict one another"
        yield ("faults", place), found, expected

    traced = {classes[n] for one in recorded_values(scenario) for n in one.written.nodes}
    for place, fault in enumerate(scenario.faults):
        if isinstance(fault, ChangedLink):
            path = ("faults", place)
            numbers = fault.pick_targets(classes, seed=scenario.seed, place=place)
            for name in sorted(traced.intersection(classes[one] for one in numbers)):
                found = f"a change to links of class {name}, which follow a recording"
                expected = "links without a recording: a recording determines all their changes"
                yield (*path, fault.name), found, expected
            links = {whose: link for _, whose, link in links_after(scenario, fault, place)}
            for whose, link in links.items():
                yield from _check_link(scenario, path, link, whose)
            if scenario.network.offload == "on" and any(map(needs_packets, links.values())):
                expected = "`network: {offload: off}`: otherwise netem cannot emulate this link"
                yield (*path, fault.name), "offload: on", expected


def _check_targets(scenario: Scenario) -> Iterator[Finding]:
    """Check that every selector matches nodes, and that there are enough to draw from."""
    classes, others = scenario.workers.worker_classes(), feeders(scenario)
    of_workers = (
        f"a worker (w0 to w{len(classes) - 1}), a pattern like 'w[0-9]', or class=NAME "
        f"with a class of workers ({', '.join(scenario.workers.classes)})"
    )
    for place, fault in enumerate(scenario.faults):
        path = ("faults", place)
        key, expected = ("workers", of_workers) if fault.targets_workers else _feeders(scenario)
        for selector in fault.unmatched_selectors(classes, others):
            yield (*path, key), display(selector), expected
        available = len(fault.candidates(classes, others))
        if fault.count is not None and fault.count > available:
            expected = f"at most {available:,}, the number of nodes that match the selectors"
            found = f"{fault.count:,}"
            yield (*path, "count"), found, expected


def _feeders(scenario: Scenario) -> tuple[str, str]:
    """Return the field that selects nodes that feed streams, and its valid values."""
    if scenario.streams is None:
        return "nodes", "none: there are no producers or brokers without `streams`"
    if scenario.simulated:
        return "nodes", "none: a simulation has neither producers nor a broker"
    return "nodes", f"one of {', '.join(feeders(scenario))}, or a pattern like 'producer*'"


def _check_engine(scenario: Scenario) -> Iterator[Finding]:
    """Check that no node has to start again after its container has exited."""
    for place, worker in rejoining(
        scenario.faults, scenario.workers.worker_classes(), seed=scenario.seed
    ):
        expected = "a worker that has not left before: its container cannot be started again"
        yield ("faults", place), f"a join of w{worker}, which has left before", expected
    for place, fault in enumerate(scenario.faults):
        if isinstance(fault, Kill) and fault.duration is not None:
            path = ("faults", place, "for")
            expected = "no duration: the container exits too; kafka's `restart` restarts a broker"
            yield path, str(fault.duration), expected


def _check_link(scenario: Scenario, path: Keys, link: LinkSpec, whose: str) -> Iterator[Finding]:
    """Check a link as changed by a fault: the kernel must be able to create it."""
    for direction, shape in (("up", link.up), ("down", link.down)):
        if shape.jitter is not None and shape.delay is not None and shape.jitter > shape.delay:
            found = f"a delay below the jitter of {whose}"
            expected = f"a delay of at least the jitter, {shape.jitter * scenario.time_scale:g} s"
            place = (*path, direction, "delay")
            yield place, found, expected
    for direction, reason in unshapable(link):
        yield (*path, direction), "", "", f"{whose}: {reason}"
