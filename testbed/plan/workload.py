"""From a workload to the plan of its nodes. Pure, as ``make.plan`` is for a training."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from testbed.network.offloads import needs_packets
from testbed.plan.nodes.base import PREFIX, link_seed
from testbed.plan.nodes.program import ProgramRole
from testbed.scenario.links import link_spec
from testbed.scenario.workload import Workload
from testbed.values.topology import DEFAULT_MTU, NetworkSpec, Plan, Trunk

ROLE = ProgramRole()


def plan_workload(workload: Workload, run: str) -> Plan:
    """Return the nodes of a run, with addresses, uids, limits and links."""
    nodes = tuple(ROLE.workload_nodes(workload))
    links = [node.link for node in nodes if node.link is not None]
    mtu = max((link.mtu or DEFAULT_MTU for link in links), default=DEFAULT_MTU)
    trunks = tuple(_trunks(workload, mtu=mtu))
    offload = workload.network.offload
    if offload == "auto":  # any pair may talk, so one such link concerns all
        single = any(needs_packets(link) for link in (*links, *(one.link for one in trunks)))
        offload = "off" if single else "on"
    return Plan(
        run=run,
        nodes=nodes,
        network=NetworkSpec(PREFIX, workload.network.missing, offload, trunks),
        launch=workload.launch,
        labels={"run": run, "scenario": workload.name},
        runtime=workload.runtime.model_dump(mode="json", exclude_none=True),
    )


def _trunks(workload: Workload, *, mtu: int) -> Iterator[Trunk]:
    """Yield the links between switches; frames of up to ``mtu`` pass them by default."""
    for name, link in workload.links.items():
        seed = link_seed(workload, name)
        spec = link_spec(link, address="", mac="", time_scale=workload.time_scale, seed=seed)
        own = link.mtu or (None if mtu == DEFAULT_MTU else mtu)
        yield Trunk(name, link.ends, replace(spec, mtu=own))
