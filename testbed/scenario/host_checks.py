"""Checks of a scenario whose workers are on several hosts."""

from __future__ import annotations

from collections.abc import Iterator

from testbed.runtimes import Docker
from testbed.scenario.document import Finding
from testbed.scenario.schema import Scenario

HERE = "with `hosts: swarm`"


def check_hosts(scenario: Scenario) -> Iterator[Finding]:
    """Check that classes with a placement exist, and that all fields apply on other hosts."""
    runtime = scenario.runtime
    if not isinstance(runtime, Docker) or runtime.swarm is None:
        return
    classes = scenario.workers.classes
    for name in runtime.swarm.placement:
        if name not in classes:
            expected = f"a class of workers: {' or '.join(classes)}"
            yield ("runtime", "hosts", "placement", name), name, expected
    for name, device in classes.items():
        if device.gpus:
            path = ("workers", "classes", name, "gpus")
            yield path, f"{device.gpus:g}", f"0 {HERE}: only this host's GPUs are known"
