"""From a workload to the plan of its nodes. Pure, as ``make.plan`` is for a training."""

from __future__ import annotations

from testbed.network.offloads import needs_packets
from testbed.plan.nodes.base import PREFIX
from testbed.plan.nodes.program import ProgramRole
from testbed.scenario.workload import Workload
from testbed.values.topology import NetworkSpec, Plan

ROLE = ProgramRole()


def plan_workload(workload: Workload, run: str) -> Plan:
    """Return the nodes of a run, with addresses, uids, limits and links."""
    nodes = tuple(ROLE.workload_nodes(workload))
    offload = workload.network.offload
    if offload == "auto":  # any pair may talk, so one such link concerns all
        single = any(needs_packets(node.link) for node in nodes if node.link is not None)
        offload = "off" if single else "on"
    return Plan(
        run=run,
        nodes=nodes,
        network=NetworkSpec(PREFIX, workload.network.missing, offload),
        launch=workload.launch,
        labels={"run": run, "scenario": workload.name},
        runtime=workload.runtime.model_dump(mode="json", exclude_none=True),
    )
