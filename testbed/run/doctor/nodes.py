"""Checks of what a scenario's nodes ask of this host, which `testbed up` refuses at once."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path

from testbed.errors import HostError
from testbed.host.gpus import find_gpus
from testbed.payloads import VALUE_BYTES
from testbed.plan.gpus import deal_gpus, holders
from testbed.run.doctor.host import ExaminedRun
from testbed.runtimes.base import Finding, RuntimeDriver
from testbed.values.topology import Gpu


def check_nodes(
    case: ExaminedRun,
    driver: RuntimeDriver,
    *,
    reported: Collection[str] = (),
    find_gpus: Callable[[], Sequence[Gpu]] = find_gpus,
) -> Iterator[Finding]:
    """Check the limits, CPUs, GPUs and folders of a scenario's nodes; nothing without a scenario.

    Args:
        case: the run.
        driver: of its runtime.
        reported: what other checks have found to be missing.
        find_gpus: finds this host's GPUs.
    """
    plan = case.plan
    if plan is None:
        return
    if plan.wants_gpus:
        parameters = 0 if case.budget is None else case.budget.parameters or 0
        try:
            plan = deal_gpus(plan, find_gpus(), vector=VALUE_BYTES * parameters)
            shared = (f"GPU {gpu.index} for {len(nodes):,} nodes" for gpu, nodes in holders(plan))
            yield Finding("GPUs", "ok", "; ".join(shared))
        except HostError as error:
            yield Finding("GPUs", "missing", error.message, error.hint)
    for folder in sorted({folder for node in plan.nodes for folder in node.folders}):
        if not Path(folder).is_dir():
            yield Finding(
                "nodes", "missing", f"{folder}: no such folder on this host", "Create it."
            )
    try:
        driver.check(plan.nodes)
    except HostError as error:
        if error.message not in reported:
            yield Finding("nodes", "missing", error.message, error.hint)
    else:
        yield Finding("nodes", "ok", "their limits, CPUs and files are available")
