"""Measures the link of every device class with spare nodes that are removed afterwards."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from math import sqrt
from pathlib import Path
from typing import Any

from testbed.errors import NodeError
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
    """The result for one device class, in real units; None for what was not measured."""

    device_class: str
    up: Direction  # configured, from the node
    down: Direction  # configured, to the node
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
class Prober:
    """Probes the classes of one run."""

    plan: Plan
    folder: RunFolder
    driver: RuntimeDriver
    agent: AgentClient
    cpus: int = field(default_factory=lambda: len(os.sched_getaffinity(0)))  # that it may use

    def probe(self, links: Mapping[str, LinkSpec]) -> list[ClassProbe]:
        """Measure a link of each device class, with the given shapes; slow links in parallel.

        Raises:
            NodeError, HostError: a probe could not be started or has no result; names it.
        """
        nodes = self._nodes(links)
        reflector, *probers = nodes
        for node in nodes:  # results of earlier probes do not count
            self.folder.log(node.name).unlink(missing_ok=True)
        with self._contained(nodes) as containers:
            self._start(reflector, others=probers, containers=containers)
            for batch in batches(probers, cpus=self.cpus):
                for node in batch:
                    self._start(node, others=[reflector], containers=containers)
                self._await({node.name for node in batch}, within=PROBE_SECONDS)
        return [self._result(node) for node in probers]

    def _nodes(self, links: Mapping[str, LinkSpec]) -> list[NodeSpec]:
        """Return the reflector and a prober for each class, at unused addresses."""
        spare = sum(node.link is not None for node in self.plan.nodes)
        mtu = max((link.mtu or DEFAULT_MTU for link in links.values()), default=None)
        nodes = [_spare(self.plan.nodes[0], REFLECTOR, LinkSpec("", "", mtu=mtu), spare)]
        for index, (name, link) in enumerate(links.items()):
            first = next(node for node in self.plan.devices if node.device_class == name)
            nodes.append(_spare(first, f"{REFLECTOR}{index}", link, spare + 1 + index))
        return nodes

    def _start(
        self, node: NodeSpec, *, others: list[NodeSpec], containers: Mapping[str, int]
    ) -> None:
        assert node.link is not None
        links = [other.link for other in others if other.link is not None]
        server = "" if node.name == REFLECTOR else links[0].address
        rates = {"up": node.link.up.rate, "down": node.link.down.rate}
        texts = {name: "" if rate is None else repr(float(rate)) for name, rate in rates.items()}
        self.agent.launch(
            LaunchSpec(
                node=node,
                network=self._network(links if node.name == REFLECTOR else [node.link]),
                entry=PROBE.entry,
                arguments={"server": server, **texts, "mtu": str(node.link.mtu or DEFAULT_MTU)},
                log=self.folder.log(node.name),
                mode=self.plan.launch,
                neighbours=tuple(Neighbour(link.address, link.mac) for link in links),
                container=containers.get(node.name),
            )
        )

    def _network(self, links: list[LinkSpec]) -> NetworkSpec:
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

    def _result(self, node: NodeSpec) -> ClassProbe:
        assert node.link is not None
        found = _last_json(self.folder.log(node.name))
        if found is None:
            raise NodeError(
                f"{node.name}: the probe of class {node.device_class} has no result.",
                hint=f"Check {self.folder.log(node.name)}.",
            )
        return ClassProbe(node.device_class, node.link.up, node.link.down, **found)


def batches(probers: Sequence[NodeSpec], *, cpus: int) -> Iterator[list[NodeSpec]]:
    """Yield the nodes in groups whose links the CPUs can fill in parallel, slowest first."""
    most = min(cpus * TOGETHER_PER_CPU, MOST_TOGETHER)
    batch: list[NodeSpec] = []
    for node in sorted(probers, key=_fastest):
        if batch and sum(map(_fastest, [*batch, node])) > most:
            yield batch
            batch = []
        batch.append(node)
    if batch:
        yield batch


def _fastest(node: NodeSpec) -> float:
    """Return the bits per second of the faster direction; an unlimited one is not filled."""
    assert node.link is not None
    return max(float(shape.rate or 0) for shape in (node.link.up, node.link.down))


def shaped_links(plan: Plan) -> dict[str, LinkSpec]:
    """Return the link of every device class whose link is shaped."""
    return {
        node.device_class: node.link
        for node in plan.devices
        if node.link is not None
        and any(s.rate is not None or s.needs_netem for s in (node.link.up, node.link.down))
    }


def record_probe(recorder: Recorder, found: ClassProbe) -> None:
    """Record the values that the verdict uses, and the other measurements."""
    name = f"class {found.device_class}"
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
    return replace(free, link=placed, role=PROBE.name, part=PROBE.part, end=PROBE.end)


def _last_json(log: Path) -> dict[str, Any] | None:
    try:
        *_, last = log.read_text(encoding="utf-8", errors="replace").splitlines()
        found: dict[str, Any] = json.loads(last)
    except (OSError, ValueError):  # no log, no line, no JSON
        return None
    return found
