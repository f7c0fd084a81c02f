"""Where gradients are computed: what prevents ``shared``, and what ``auto`` chooses."""

from __future__ import annotations

from typing import NamedTuple

from testbed.runtimes import Lxc, Native
from testbed.scenario.document import Keys
from testbed.scenario.metrics import clients_by
from testbed.scenario.schema import Scenario
from testbed.scenario.settings import MOST_SAMPLES, Auto, Own, Shared

WORKERS_PER_PROCESS = 10
"""By the plan's estimates: each saves 6 MB, and a process takes 30 MB and two models."""


class Choice(NamedTuple):
    """Where gradients are computed.

    Attributes:
        compute: by each worker, or by one node for all.
        why: the choice and its reason, if the scenario leaves it to ``auto``; else empty.
    """

    compute: Own | Shared
    why: str = ""


def choose(scenario: Scenario) -> Choice:
    """Return where gradients are computed on this host.

    ``auto`` shares if that is possible and there are at least ten workers per CPU: then the
    processes that compute need less memory than what the workers save.
    """
    if not isinstance(scenario.compute, Auto):
        return Choice(scenario.compute)
    own, shared = Own(name="own"), Shared(name="shared")
    for path, (found, _) in refusals(scenario).items():
        return Choice(own, f"own, because of {'.'.join(map(str, path))}: {found}")
    count, cpus = scenario.workers.count, shared.process_count
    why = f"because of {count:,} workers on {cpus} CPUs"
    if count < WORKERS_PER_PROCESS * cpus:
        return Choice(own, f"own, {why}: sharing saves memory from {WORKERS_PER_PROCESS} per CPU")
    return Choice(shared, f"shared, {why}")


def refusals(scenario: Scenario) -> dict[Keys, tuple[str, str]]:
    """Return what prevents ``shared``: what was found, and what is expected, by path."""
    runtime, refused = scenario.runtime, dict[Keys, tuple[str, str]]()
    if not isinstance(runtime, Native | Lxc):
        able = "native and lxc support it"
        why = "a simulation shares processes anyway" if scenario.simulated else able
        refused["runtime",] = runtime.name, why
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
    for field in ("cpu", "cpuset", "memory", "gpus"):
        instead = ", whose own are `compute.gpus`" if field == "gpus" else ""
        why = f"no {field}: it does not apply to the node that computes{instead}"
        for name, device in scenario.workers.classes.items():
            if value := getattr(device, field):
                refused["workers", "classes", name, field] = str(value), why
    return refused
