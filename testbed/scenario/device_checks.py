"""Checks of values that differ from device to device."""

from __future__ import annotations

from collections.abc import Iterator

from testbed.scenario.devices import devices, differs
from testbed.scenario.document import Finding, Keys
from testbed.scenario.links import link_spec, unshapable
from testbed.scenario.schema import Scenario


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
