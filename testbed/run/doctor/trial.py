"""The checks that start something: a real container, a real link, and netem on a link."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from testbed.errors import HostError, NodeError, TestbedError
from testbed.network.netem import owned_links
from testbed.plan.nodes.base import FIRST_WORKER_UID, address_of
from testbed.run.agents import connect
from testbed.run.doctor.host import ExaminedRun
from testbed.run.probe import PROBE, ProbedLink, Prober
from testbed.runtimes.agent.client import AgentClient
from testbed.runtimes.agent.launch import LaunchSpec
from testbed.runtimes.agent.settings import Template
from testbed.runtimes.base import ContainerSpec, Finding, RuntimeDriver, Start
from testbed.telemetry.folder import RunFolder
from testbed.values.topology import Direction, HostSpec, LinkSpec, NetworkSpec, NodeSpec, Plan
from testbed.values.units import Duration, Rate

ROLES = "testbed.runtimes.agent.probe"
CONNECT_SECONDS = 10.0
NODE_SECONDS = 20.0

RATE = Rate(10e6)
TOLERANCE_RATIO = 0.1
DELAY = Duration(0.01)
SLOW_SECONDS = 1.0

SWARM = {"name": "docker", "hosts": {"name": "swarm"}}
"""The runtime of a trial on several hosts."""


@dataclass(frozen=True)
class TrialRun:
    """A run without a scenario, to launch nodes in; its agent started in ``start_seconds``."""

    agent: AgentClient
    driver: RuntimeDriver
    plan: Plan
    folder: RunFolder
    start_seconds: float

    def launch(self, node: NodeSpec) -> None:
        """Start a node that inspects its container."""
        spec = ContainerSpec(node, (), self.folder.log(node.name))
        containers = self.driver.contain(self.plan, self.folder, [spec])
        launch = LaunchSpec(
            node=node,
            network=NetworkSpec(),
            entry=f"{ROLES}:main",
            arguments={},
            log=spec.log,
            container=containers.get(node.name),
        )
        self.agent.launch(launch)

    def output(self, node: str) -> str:
        """Return the output of a node once it has ended.

        Raises:
            NodeError: it failed, or does not end.
        """
        deadline = time.monotonic() + NODE_SECONDS
        status: int | None = None
        while status is None:
            if (left := deadline - time.monotonic()) <= 0:
                raise NodeError(f"{node} does not exit.")
            exits = self.agent.exits(left)
            status = next((ended.status for ended in exits if ended.node == node), None)
        text = self.folder.log(node).read_text()
        if status != 0:
            raise NodeError(f"{node} exited with status {status}: {text.strip()}")
        return text


def try_run(driver: RuntimeDriver, case: ExaminedRun) -> list[Finding]:
    """Start a run with one container after the other, and remove it."""
    try:
        with trial_run(driver, (node("ps", 0), node("w1", 1))) as trial:
            return [
                _attempt("container", lambda: _container(trial)),
                _attempt("link", lambda: _link(trial)),
                _attempt("netem", lambda: _netem(trial, case)),
            ]
    except TestbedError as error:
        return [Finding("container", "missing", error.message, error.hint)]


def _attempt(check: str, make: Callable[[], Finding]) -> Finding:
    try:
        return make()
    except TestbedError as error:
        return Finding(check, "missing", error.message, error.hint)


def _container(trial: TrialRun) -> Finding:
    begun = time.monotonic()
    trial.launch(node("w0", 1))
    seconds = time.monotonic() - begun
    allowed = json.loads(trial.output("w0"))["capabilities"]["CapEff"]
    if allowed:
        found = f"a worker has the capabilities {allowed:#x}, expected none"
        return Finding("container", "missing", found, "This is a bug in testbed: please report it.")
    text = f"the first after {trial.start_seconds:.2f} s, each one {seconds * 1e3:.0f} ms"
    if seconds > SLOW_SECONDS:
        return Finding("container", "warning", text, "Another program keeps this host busy.")
    return Finding("container", "ok", text)


def _link(trial: TrialRun) -> Finding:
    prober = Prober(trial.plan, trial.folder, trial.driver, trial.agent)
    (found,) = prober.probe([ProbedLink("doctor", LinkSpec("", "", up=Direction(rate=RATE)))])
    measured = found.up_bits_per_second or 0.0
    text = f"{measured / 1e6:.2f} mbit/s through a link of {RATE}"
    if abs(measured / RATE - 1) > TOLERANCE_RATIO:
        fix = (
            "Another program keeps this host busy, or its kernel cannot shape traffic at this rate."
        )
        return Finding("link", "warning", text, fix)
    return Finding("link", "ok", text)


def _netem(trial: TrialRun, case: ExaminedRun) -> Finding:
    """Try netem on a link; its importance depends on what the plan does without it."""
    try:
        trial.launch(node("w2", 3, up=Direction(delay=DELAY)))
    except HostError as error:
        needed = case.plan if case.plan and case.plan.network.missing == "fail" else None
        links = owned_links(needed.nodes, needed.network.trunks) if needed else []
        refused = any(link.up.needs_netem or link.down.needs_netem for _, link in links)
        found = "not available: links can have rates and queues, but no delay, jitter or loss"
        return Finding("netem", "missing" if refused else "warning", found, error.hint)
    trial.output("w2")
    return Finding("netem", "ok", "links can have delay, jitter and loss")


@contextmanager
def trial_run(
    driver: RuntimeDriver, nodes: tuple[NodeSpec, ...], hosts: tuple[HostSpec, ...] = ()
) -> Iterator[TrialRun]:
    """Start a run without a scenario, on this host or several; it is removed after the body.

    Args:
        driver: of its runtime.
        nodes: the nodes of its plan; none is started.
        hosts: as in a plan.

    Raises:
        HostError, NodeError: it cannot be started.
    """
    name = f"doctor-{os.getpid()}"
    with TemporaryDirectory(prefix="testbed-doctor-") as place:
        folder = RunFolder.create(
            Path(place), name, scenario="doctor", text="", classes=(), now=time.time()
        )
        labels, runtime = {"run": name}, SWARM if hosts else {}
        plan = Plan(name, nodes, NetworkSpec(), "warm", labels, runtime, hosts=hosts)
        begun = time.monotonic()
        template = Template(preload=(ROLES, PROBE.entry.partition(":")[0]))
        with driver.start(plan, folder, Start(template=template)):
            deadline = time.monotonic() + CONNECT_SECONDS
            with connect(plan, folder, deadline=deadline) as agent:
                yield TrialRun(agent, driver, plan, folder, time.monotonic() - begun)


def node(
    name: str, number: int, *, up: Direction | None = None, mtu: int | None = None, host: str = ""
) -> NodeSpec:
    """Return a node of a trial, with a link; the number is that of its address."""
    address, mac = address_of(number)
    return NodeSpec(
        name=name,
        role="doctor",
        index=number,
        device_class="doctor",
        link=LinkSpec(address, mac, up or Direction(), mtu=mtu),
        cpu=None,
        memory=None,
        cpu_weight=1,
        uid=FIRST_WORKER_UID + number,
        part="client" if number else "server",
        host=host,
    )
