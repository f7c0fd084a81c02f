"""Checks of the field ``compute``."""

from __future__ import annotations

from collections.abc import Iterator

from testbed.runtimes import Lxc, Native
from testbed.scenario.compute import MOST_SAMPLES, Own
from testbed.scenario.document import Finding, Keys
from testbed.scenario.metrics import clients_by
from testbed.scenario.schema import Scenario


def check_compute(scenario: Scenario) -> Iterator[Finding]:
    """Check that shared processes can compute what the scenario trains."""
    if isinstance(scenario.compute, Own):
        return
    runtime, refused = scenario.runtime, dict[Keys, tuple[object, str]]()
    if not isinstance(runtime, Native | Lxc):
        able = "native and lxc support it"
        why = "a simulation shares processes anyway" if scenario.simulated else able
        refused["compute",] = f"shared, with runtime {runtime.name}", f"own: {why}"
    if scenario.launch == "cold":
        refused["launch",] = "cold", "warm: a worker that imports everything itself saves no memory"
    if scenario.streams is not None:
        refused["streams",] = "streams", "none: samples of a stream exist in its worker only"
    if scenario.workers.batch_size > MOST_SAMPLES:
        most = f"at most {MOST_SAMPLES:,}, as many as a request holds"
        refused["workers", "batch_size"] = f"{scenario.workers.batch_size:,}", most
    if clients_by("workers", scenario) is not None:
        able = "clients by the evaluator: workers have no network then"
        refused["evaluate", "metrics"] = "clients by workers", able
    for name, member in scenario.workers.classes.items():
        for field in ("cpu", "cpuset", "memory", "gpus"):
            if value := getattr(member, field):
                why = "it does not apply to the node that computes"
                refused["workers", "classes", name, field] = value, f"no {field}: {why}"
    for path, (found, expected) in refused.items():
        yield path, str(found), expected, "" if "compute" in path else "Or set `compute: own`"
