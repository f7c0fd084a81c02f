"""Checks of a scenario whose nodes are on several hosts."""

from __future__ import annotations

from collections.abc import Iterator

from testbed.runtimes import Docker
from testbed.runtimes.docker import SERVER
from testbed.scenario.document import Finding
from testbed.scenario.schema import Scenario

HERE = "with `hosts: swarm`"


def check_hosts(scenario: Scenario) -> Iterator[Finding]:
    """Check that classes with a placement exist, and that all fields apply on other hosts."""
    runtime = scenario.runtime
    if not isinstance(runtime, Docker) or runtime.swarm is None:
        return
    classes, placement = scenario.workers.classes, runtime.swarm.placement
    for name in placement:
        if name not in (SERVER, *classes):
            expected = f"a class of workers: {' or '.join(classes)}; or {SERVER}"
            yield ("runtime", "hosts", "placement", name), name, expected
    if SERVER in placement and SERVER in classes:
        expected = f"another name, as `placement` has one for the parameter server, {SERVER}"
        yield ("workers", "classes", SERVER), SERVER, expected
    if SERVER in placement and scenario.evaluate.gpus:
        expected = f"0 {HERE} and a placement of {SERVER}: only this host's GPUs are known"
        yield ("evaluate", "gpus"), f"{scenario.evaluate.gpus:g}", expected
    for name, device in classes.items():
        if device.gpus:
            path = ("workers", "classes", name, "gpus")
            yield path, f"{device.gpus:g}", f"0 {HERE}: only this host's GPUs are known"
