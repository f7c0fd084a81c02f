"""What a scenario's faults may ask for in vain: workers, moments and links that cannot be so."""

from __future__ import annotations

from collections.abc import Iterator

from testbed.errors import Problem
from testbed.faults import ChangedLink
from testbed.faults.check import contradictions, rejoining
from testbed.network.offloads import needs_packets
from testbed.network.qdiscs import qdiscs_of
from testbed.scenario.document import Document, Keys, options_path, problem_at
from testbed.scenario.links import links_after
from testbed.scenario.scalars import display
from testbed.scenario.schema import Scenario
from testbed.scenario.traces import places
from testbed.topology import LinkSpec


def check_faults(scenario: Scenario, document: Document) -> Iterator[Problem]:
    """They strike workers that are there, and can be beside one another."""
    classes, missing = scenario.workers.dealt(), False
    for place, fault in enumerate(scenario.faults):
        path = options_path(document, ("faults", place))
        for selector in fault.nobody(classes):
            expected = (
                f"a worker (w0 to w{len(classes) - 1}), a pattern like 'w[0-9]', or class=NAME "
                f"with a class of workers ({', '.join(scenario.workers.classes)})"
            )
            missing = True
            yield problem_at(
                document, (*path, "workers"), found=display(selector), expected=expected
            )
        if fault.count is not None and fault.count > len(fault.meant(classes)):
            expected = f"at most {len(fault.meant(classes)):,}, as many as there are to draw from"
            missing = True
            yield problem_at(
                document, (*path, "count"), found=f"{fault.count:,}", expected=expected
            )
    if missing:
        return
    if scenario.runtime.capabilities.engine:
        for place, worker in rejoining(scenario.faults, classes, seed=scenario.seed):
            expected = "a worker that was not there before: an engine's container has ended then"
            found = f"w{worker}, which was gone"
            yield problem_at(document, ("faults", place), found=found, expected=expected)
    for place, found in contradictions(scenario.faults, classes, seed=scenario.seed):
        expected = "faults that can be beside one another"
        yield problem_at(document, ("faults", place), found=found, expected=expected)

    for place, fault in enumerate(scenario.faults):
        if isinstance(fault, ChangedLink):
            path = options_path(document, ("faults", place))
            struck = {
                classes[one] for one in fault.struck(classes, seed=scenario.seed, place=place)
            }
            for name in sorted(struck.intersection(one.device_class for one in places(scenario))):
                found = f"a change of links of class {name}, which follow a recording"
                expected = "links that do not: a recording says all that becomes of one"
                yield problem_at(document, path, found=found, expected=expected)
            links = {classes[one]: link for one, link in links_after(scenario, fault, place)}
            for name, link in links.items():
                yield from _check_link(scenario, document, path, link, name)
            if scenario.network.offload == "on" and any(map(needs_packets, links.values())):
                expected = "`network: {offload: off}`: this link needs segmentation offloads off"
                yield problem_at(document, path, found="offload: on", expected=expected)


def _check_link(
    scenario: Scenario, document: Document, path: Keys, link: LinkSpec, device_class: str
) -> Iterator[Problem]:
    """A link that the kernel can have, as a fault makes it in this class."""
    for direction, shape in (("up", link.up), ("down", link.down)):
        if shape.jitter is not None and shape.delay is not None and shape.jitter > shape.delay:
            found = f"a delay below the jitter of class {device_class}"
            expected = f"at least that, {shape.jitter * scenario.time_scale:g} s"
            place = (*path, direction, "delay")
            yield problem_at(document, place, found=found, expected=expected)
    try:
        qdiscs_of(link)
    except ValueError as error:
        direction, _, reason = str(error).partition(": ")
        hint = f"class {device_class}: {reason}"
        yield problem_at(document, (*path, direction), hint=hint)
