"""Measures links of device classes and between switches, with spare nodes removed afterwards."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from math import sqrt
from pathlib import Path
from typing import Any

from testbed.errors import NodeError
from testbed.host.requirements import usable_cpus
from testbed.network.interfaces import Neighbour
from testbed.network.jitter import SCALE, table
from testbed.network.offloads import needs_packets
from testbed.plan.nodes.base import address_of
from testbed.plan.nodes.probe import ProbeRole
from testbed.runtimes.agent.client import AgentClient
from testbed.runtimes.agent.launch import LaunchSpec
from testbed.runtimes.base import ContainerSpec, RuntimeDriver
from testbed.telemetry.event_kinds import MessagesTimed, RateMeasured, RoundTripMeasured
from testbed.telemetry.folder import RunFolder
from testbed.telemetry.record import Recorder
from testbed.values.topology import (
    CORE,
    DEFAULT_MTU,
    Direction,
    LinkSpec,
    NetworkSpec,
    NodeSpec,
    Plan,
)

PROBE = ProbeRole()
REFLECTOR = PROBE.name
PROBE_SECONDS = 60.0
END_SECONDS = 10.0

TOGETHER_PER_CPU = 40e6
"""Total bits per second of the links that are filled in parallel, per CPU; more would take CPU time
from other probes, and the measurement would show the host's limit."""

MOST_TOGETHER = 80e6
"""On any number of CPUs: the reflector is one process, at the other end of all the links."""

MEDIAN_ERROR = 1.2533
"""Standard error of a median of n normal draws, times the square root of n."""


@dataclass(frozen=True)
class ClassProbe:
    """The result for one device class or trunk, in real units; None for what was not measured."""

    owner: str  # such as ``class slow`` or ``link uplink``
    up: Direction  # configured, from the node or the first switch
    down: Direction  # configured, to it
    up_bits_per_second: float | None  # measured, of Ethernet frames; None if the host was too slow
    down_bits_per_second: float | None  # likewise
    round_trip_seconds: float | None  # median
    round_trips: int  # the number of samples
    message_up_seconds: float  # a push of 17 KB and its acknowledgement; median of 3 or 1
    message_down_seconds: float  # a request and a pull of 17 KB

    @property
    def expected_round_trip_seconds(self) -> float:
        """Return the expected median, by the configured delays and distributions of jitter."""
        return sum(_median_delay(shape) for shape in (self.up, self.down))

    @property
    def round_trip_error_seconds(self) -> float:
        """Return the standard error of the measured median, due to the variation of delays."""
        variance = sum(float(shape.jitter or 0) ** 2 for shape in (self.up, self.down))
        return MEDIAN_ERROR * sqrt(variance / max(1, self.round_trips))


@dataclass(frozen=True)
class ProbedLink:
    """A link to measure: that of a device class, or one between two switches."""

    name: str  # of the class, or of the trunk
    link: LinkSpec
    ends: tuple[str, str] | None = None  # the switches between which it is

    @property
    def owner(self) -> str:
        """The link's owner, such as ``class slow`` or ``link uplink``."""
        return f"link {self.name}" if self.ends else f"class {self.name}"

    @property
    def fastest(self) -> float:
        """Bits per second of the faster direction; an unlimited one is not filled."""
        return max(float(shape.rate or 0) for shape in (self.link.up, self.link.down))


@dataclass(frozen=True)
class Probe:
    """A link to measure, and the spare nodes at its two ends."""

    link: ProbedLink
    node: NodeSpec
    reflector: NodeSpec


@dataclass(frozen=True)
class Prober:
    """Probes the links of one run."""

    plan: Plan
    folder: RunFolder
    driver: RuntimeDriver
    agent: AgentClient
    cpus: int = field(default_factory=usable_cpus)  # that it may use

    def probe(self, links: Sequence[ProbedLink]) -> list[ClassProbe]:
        """Measure links with the given shapes; slow links in parallel.

        Raises:
            NodeError, HostError: a probe could not be started or has no result; names it.
        """
        probes = self._probes(links)
        reflectors = list({probe.reflector.name: probe.reflector for probe in probes}.values())
        nodes = [*reflectors, *(probe.node for probe in probes)]
        for node in nodes:  # results of earlier probes do not count
            self.folder.log(node.name).unlink(missing_ok=True)
        with self._contained(nodes) as containers:
            for reflector in reflectors:
                others = [probe.node for probe in probes if probe.reflector == reflector]
                shapes = [probe.link.link for probe in probes if probe.reflector == reflector]
                self._start(reflector, others, containers, shapes=shapes)
            for batch in batches(links, cpus=self.cpus):
                started = [probe for probe in probes if probe.link in batch]
                for probe in started:
                    shape = probe.link.link
                    texts = {
                        way: "" if rate is None else repr(float(rate))
                        for way, rate in (("up", shape.up.rate), ("down", shape.down.rate))
                    }
                    self._start(probe.node, [probe.reflector], containers, [shape], **texts)
                self._await({probe.node.name for probe in started}, within=PROBE_SECONDS)
        self.agent.copy_logs(last=[node.name for node in nodes])
        return [self._result(probe) for probe in probes]

    def _probes(self, links: Sequence[ProbedLink]) -> list[Probe]:
        """Return spare nodes for each link, at unused addresses: a class's link leads to the core.

        A link between switches has a node without a shape of its own at either end.
        """
        spare = sum(node.link is not None for node in self.plan.nodes)
        mtu = max((one.link.mtu or DEFAULT_MTU for one in links), default=None)
        reflectors: dict[str, NodeSpec] = {}
        probes = []
        for index, one in enumerate(links):
            near, far = one.ends or (CORE, CORE)
            if far not in reflectors:
                number = len(links) + len(reflectors)
                name = f"{REFLECTOR}{number}" if reflectors else REFLECTOR
                plain = LinkSpec("", "", mtu=mtu, switch=far)
                reflectors[far] = _spare(self.plan.nodes[0], name, plain, spare + number)
            known = [node for node in self.plan.devices if node.device_class == one.name]
            first = self.plan.nodes[0] if one.ends else self._farthest(known)
            link = LinkSpec("", "", mtu=mtu) if one.ends else one.link
            link = replace(link, switch=near)
            node = _spare(first, f"{REFLECTOR}{index}", link, spare + index)
            probes.append(Probe(one, node, reflectors[far]))
        return probes

    def _farthest(self, nodes: Sequence[NodeSpec]) -> NodeSpec:
        """Return one on another host than the reflector, or the first."""
        here = self.plan.nodes[0].host
        return next((node for node in nodes if node.host != here), nodes[0])

    def _start(
        self,
        node: NodeSpec,
        others: Sequence[NodeSpec],
        containers: Mapping[str, int],
        shapes: Sequence[LinkSpec],
        *,
        up: str | None = None,
        down: str = "",
    ) -> None:
        """Launch a reflector or, with the rates of a link, its prober; ``shapes`` they see."""
        assert node.link is not None
        links = [other.link for other in others if other.link is not None]
        server = "" if up is None else links[0].address
        self.agent.launch(
            LaunchSpec(
                node=node,
                network=self._network(shapes),
                entry=PROBE.entry,
                arguments={
                    **{"server": server, "up": up or "", "down": down},
                    "mtu": str(node.link.mtu or DEFAULT_MTU),
                },
                log=self.folder.log(node.name),
                mode=self.plan.launch,
                neighbours=tuple(
                    Neighbour(other.link.address, other.link.mac, self.plan.route(node, other))
                    for other in others
                    if other.link is not None
                ),
                container=containers.get(node.name),
            )
        )

    def _network(self, links: Sequence[LinkSpec]) -> NetworkSpec:
        network = self.plan.network
        if network.offload != "auto":
            return network
        single = any(needs_packets(link) for link in links)
        return replace(network, offload="off" if single else "on")

    @contextmanager
    def _contained(self, nodes: Sequence[NodeSpec]) -> Iterator[Mapping[str, int]]:
        """Yield the containers of the probes, which are ended after the body in any case."""
        cells = [ContainerSpec(node, (), self.folder.log(node.name)) for node in nodes]
        containers = self.driver.contain(self.plan, self.folder, cells)
        names = [node.name for node in nodes]
        try:
            yield containers
        finally:
            for name in set(names) & set(self.agent.running()):
                self.agent.signal(name, signal.SIGKILL)
            try:
                self._await(set(names), within=END_SECONDS)
            finally:
                self.driver.discard(self.folder, names)

    def _await(self, names: set[str], *, within: float) -> None:
        deadline = time.monotonic() + within
        while running := names & set(self.agent.running()):
            if (left := deadline - time.monotonic()) <= 0:
                raise NodeError(f"{min(running)}: this probe did not end within {within:g} s.")
            self.agent.exits(left)  # or of an earlier probe of that name: so ask again

    def _result(self, probe: Probe) -> ClassProbe:
        log, link = self.folder.log(probe.node.name), probe.link.link
        found = _last_json(log)
        if found is None:
            raise NodeError(
                f"{probe.node.name}: the probe of {probe.link.owner} has no result.",
                hint=f"Check {log}.",
            )
        return ClassProbe(probe.link.owner, link.up, link.down, **found)


def batches(links: Sequence[ProbedLink], *, cpus: int) -> Iterator[list[ProbedLink]]:
    """Yield the links in groups that the CPUs can fill in parallel, slowest first."""
    most = min(cpus * TOGETHER_PER_CPU, MOST_TOGETHER)
    batch: list[ProbedLink] = []
    for link in sorted(links, key=lambda one: one.fastest):
        if batch and sum(one.fastest for one in [*batch, link]) > most:
            yield batch
            batch = []
        batch.append(link)
    if batch:
        yield batch


def shaped_links(plan: Plan) -> list[ProbedLink]:
    """Return the shaped links: one of every device class, and those between switches."""
    classes = {node.device_class: node.link for node in plan.devices if node.link is not None}
    return [
        *(ProbedLink(name, link) for name, link in classes.items() if link.is_shaped),
        *(ProbedLink(t.name, t.link, t.ends) for t in plan.network.trunks if t.link.is_shaped),
    ]


def record_probe(recorder: Recorder, found: ClassProbe) -> None:
    """Record the values that the verdict uses, and the other measurements."""
    name = found.owner
    up, down = (found.up, found.up_bits_per_second), (found.down, found.down_bits_per_second)
    for direction, (shape, measured) in {"up": up, "down": down}.items():
        if shape.rate is not None:
            recorder.event(RateMeasured(f"{name} {direction}", float(shape.rate), measured))
    if found.round_trip_seconds is not None:
        trip = RoundTripMeasured(
            name,
            configured_seconds=found.expected_round_trip_seconds,
            measured_seconds=found.round_trip_seconds,
            error_seconds=found.round_trip_error_seconds,
        )
        recorder.event(trip)
    recorder.event(MessagesTimed(name, found.message_up_seconds, found.message_down_seconds))


def _median_delay(shape: Direction) -> float:
    deviations = table(shape.distribution or "normal")
    median = deviations[len(deviations) // 2] / SCALE
    return float(shape.delay or 0) + median * float(shape.jitter or 0)


def _spare(node: NodeSpec, name: str, link: LinkSpec, number: int) -> NodeSpec:
    """Return a probe with the node's uid and none of its limits, to measure only the link."""
    address, mac = address_of(number)
    free = replace(
        node, name=name, cpu=None, cpuset=None, memory=None, gpus=0, dealt=(), command=()
    )
    placed = replace(link, address=address, mac=mac)
    own = replace(free, link=placed, role=PROBE.name, part=PROBE.part, end=PROBE.end)
    return replace(own, image="nodes")  # it runs testbed's Python, in whatever image the node is


def _last_json(log: Path) -> dict[str, Any] | None:
    try:
        *_, last = log.read_text(encoding="utf-8", errors="replace").splitlines()
        found: dict[str, Any] = json.loads(last)
    except (OSError, ValueError):  # no log, no line, no JSON
        return None
    return found
