"""The checks of the hosts of a Swarm: each of them, and a frame each way between each two."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import permutations
from pathlib import Path

from testbed.errors import HostError, NodeError, TestbedError
from testbed.network.interfaces import Neighbour
from testbed.network.tunnel import PORT, VXLAN_HEADER_BYTES
from testbed.plan.placement import place
from testbed.run.doctor.host import ExaminedRun
from testbed.run.doctor.trial import TrialRun, node, trial_run
from testbed.run.hosts import copy_image_to
from testbed.runtimes.agent.frames import WITHIN_SECONDS
from testbed.runtimes.agent.launch import LaunchSpec
from testbed.runtimes.base import ContainerSpec, Finding, RuntimeDriver
from testbed.runtimes.docker import Swarm
from testbed.runtimes.docker.swarm import ADDRESS_LABEL, SwarmHost, find_hosts
from testbed.values.topology import DEFAULT_MTU, HostSpec, LinkSpec, NodeSpec, Plan

ROLE = "testbed.runtimes.agent.frames"
MTU = DEFAULT_MTU - VXLAN_HEADER_BYTES
"""Of a link for which the scenario has none."""

BOTH = ["large", "small"]


def examine_hosts(
    driver: RuntimeDriver, case: ExaminedRun, swarm: Swarm, *, phase: Callable[[str], None]
) -> Iterator[Finding]:
    """Check every host, then start an agent and a node on each and have these exchange frames.

    Args:
        driver: of the runtime.
        case: the run; its nodes are given hosts, and its links have an MTU.
        swarm: the scenario's wishes.
        phase: announces what takes long.
    """
    try:
        hosts = find_hosts()
    except HostError as error:
        yield Finding("hosts", "missing", error.message, error.hint)
        return
    yield from map(describe, hosts)
    yield from check_placement(hosts, case, swarm)
    usable = [host.spec for host in hosts if not (host.lacks or host.left_out)]
    if len(usable) < 2 or not usable[0].here:
        return
    try:
        copy_image_to(usable, driver.check(())["nodes"], phase=phase)
        controller = usable[0].name
        named = (usable[0], *(replace(host, controller=controller) for host in usable[1:]))
        mtu = _mtu_of(case.plan)
        with trial_run(driver, _nodes(named, mtu=mtu), named) as trial:
            yield from _clocks(trial)
            yield from judge(usable, _exchange(trial, mtu=mtu), mtu=mtu)
    except TestbedError as error:
        yield Finding("frames", "missing", error.message, error.hint)


def describe(host: SwarmHost) -> Finding:
    """Report what a host is, or why it cannot carry nodes."""
    check = f"host {host.name}"
    if host.left_out and not host.here:
        return Finding(check, "warning", f"runs leave it out: {host.left_out}")
    if lacks := (*host.lacks, *([host.left_out] if host.left_out else [])):
        return Finding(check, "missing", "; ".join(lacks))
    image = host.image or "no image: it is copied when it is needed"
    found = f"{host.address}, {host.architecture}, engine {host.version}, {image}"
    return Finding(check, "ok", found)


def check_placement(
    hosts: Sequence[SwarmHost], case: ExaminedRun, swarm: Swarm
) -> Iterator[Finding]:
    """Report that the nodes of a run do not fit on these hosts, this one first; else nothing."""
    if case.plan is None or case.budget is None or hosts[0].left_out:
        return
    sizes = case.budget
    try:
        place(
            case.plan,
            [host.spec for host in hosts if not host.left_out],
            swarm,
            needs=lambda node: sizes.node_bytes[node.role],
            agent_bytes=sizes.agent_bytes,
            left_out=[(host.spec, host.left_out) for host in hosts if host.left_out],
        )
    except HostError as error:
        yield Finding("placement", "missing", error.message, error.hint)


def _mtu_of(plan: Plan | None) -> int:
    """Return the largest MTU of the links of a run over several hosts."""
    links = (one.link for one in (plan.nodes if plan else ()) if one.link is not None)
    return max((link.mtu or MTU for link in links), default=MTU)


def _nodes(hosts: Sequence[HostSpec], *, mtu: int) -> tuple[NodeSpec, ...]:
    """Return one node for each host."""
    return tuple(
        node(f"d{number}", number, mtu=mtu, host=host.name) for number, host in enumerate(hosts)
    )


def _link(of: NodeSpec) -> LinkSpec:
    assert of.link is not None, "every node of a trial has one"
    return of.link


def _clocks(trial: TrialRun) -> Iterator[Finding]:
    for host in trial.agent.other_hosts():
        ahead, error = host.clock.seconds, host.clock.error_seconds
        found = f"{ahead:+.3f} s from this host's, known to {error * 1e3:.1f} ms: need not agree"
        yield Finding(f"clock of {host.name}", "ok", found)


def _exchange(trial: TrialRun, *, mtu: int) -> Mapping[str, Mapping[str, Sequence[str]]]:
    """Return by host which packets have arrived from each other host.

    Raises:
        NodeError, HostError: a node could not be started, or failed.
    """
    nodes, logs = trial.plan.nodes, trial.folder.log
    specs = [ContainerSpec(one, (), logs(one.name)) for one in nodes]
    containers = trial.driver.contain(trial.plan, trial.folder, specs)
    requests = [_launch(trial, one, containers[one.name], mtu=mtu) for one in nodes]
    for started in [trial.agent.begin_launch(request) for request in requests]:
        started()
    names = {one.name for one in nodes}
    deadline = time.monotonic() + 2 * WITHIN_SECONDS
    while names and (left := deadline - time.monotonic()) > 0:
        names -= {ended.node for ended in trial.agent.exits(left)}
    host_at = {_link(one).address: one.host for one in nodes}
    return {
        one.host: {host_at[peer]: sizes for peer, sizes in _printed(logs(one.name)).items()}
        for one in nodes
    }


def _launch(trial: TrialRun, one: NodeSpec, container: int, *, mtu: int) -> LaunchSpec:
    """Return the request of a node that exchanges packets with all others."""
    others = [other for other in trial.plan.nodes if other != one]
    links = [(_link(other), trial.plan.route(one, other)) for other in others]
    return LaunchSpec(
        one,
        trial.plan.network,
        f"{ROLE}:main",
        {
            "address": _link(one).address,
            "peers": " ".join(link.address for link, _ in links),
            "bytes": str(mtu),
        },
        trial.folder.log(one.name),
        neighbours=tuple(Neighbour(link.address, link.mac, route) for link, route in links),
        container=container,
    )


def _printed(log: Path) -> dict[str, list[str]]:
    text = log.read_text(errors="replace").strip()
    try:
        found: dict[str, list[str]] = json.loads(text)
    except ValueError:
        raise NodeError(f"{log.stem}: expected a result, it printed: {text}") from None
    return found


def judge(
    hosts: Sequence[HostSpec], arrived: Mapping[str, Mapping[str, Sequence[str]]], *, mtu: int = MTU
) -> Iterator[Finding]:
    """Report the directions in which frames are lost, or that none is. Pure.

    Args:
        hosts: all of them.
        arrived: by host, the sizes of the packets that have arrived from each other host.
        mtu: bytes of the large ones.
    """
    lost = False
    for one, other in permutations(hosts, 2):
        sizes = arrived[other.name][one.name]
        if sizes == BOTH:
            continue
        lost = True
        way = f"from {one.name} ({one.address}) to {other.name} ({other.address})"
        if sizes == ["small"]:
            found = f"{way}: packets of {mtu:,} bytes are lost, small ones arrive"
            fix = f"Raise the MTU of what is between them, or set `mtu:` at links below {mtu:,}."
        else:
            found = f"{way}: none arrives at UDP port {PORT}"
            fix = (
                f"Allow UDP port {PORT} from {one.address} in the firewall of {other.name} and "
                f"between them; if a tunnel leads there: label {ADDRESS_LABEL} of the Swarm's node."
            )
        yield Finding("frames", "missing", found, fix)
    if not lost:
        found = f"arrive each way between each two of {len(hosts)} hosts, up to {mtu:,} bytes"
        yield Finding("frames", "ok", found)
