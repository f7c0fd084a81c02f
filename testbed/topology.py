"""What a runtime, the agent and the network understand: nodes, links and the plan. Frozen data.

Everything here is in real units: rates and durations have been scaled by the scenario's
``time_scale`` already. Nothing here knows algorithms, models or scenarios.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from testbed.cpusets import CpuSet
from testbed.units import Duration, Rate, Size

Role = Literal["ps", "evaluator", "worker", "probe"]
Launch = Literal["warm", "cold"]
Missing = Literal["fail", "warn"]
Offload = Literal["auto", "on", "off"]
Distribution = Literal["normal", "uniform", "pareto", "paretonormal"]


@dataclass(frozen=True)
class Shape:
    """One direction of a link; a field that is None is not shaped.

    Attributes:
        rate: bits per second of Ethernet frames.
        delay: one-way delay.
        jitter: standard deviation of the delay.
        loss: share of packets lost, in [0, 1].
        queue: how long a full queue takes to drain at ``rate``; None for the default,
            max(100 ms, round-trip time).
        distribution: law of the jitter.
        loss_correlation: between a packet's loss and the next one's, in [0, 1).
    """

    rate: Rate | None = None
    delay: Duration | None = None
    jitter: Duration | None = None
    loss: float | None = None
    queue: Duration | None = None
    distribution: Distribution = "normal"
    loss_correlation: float | None = None

    @property
    def needs_netem(self) -> bool:
        """Whether this direction can only be had with the kernel's netem."""
        return bool(self.delay) or bool(self.jitter) or bool(self.loss)


@dataclass(frozen=True)
class LinkSpec:
    """A node's one link to the switch.

    Attributes:
        address: IPv4 address of the node's ``eth0``.
        mac: its MAC address, 02:00 followed by the address's four bytes.
        up: from the node to the switch, shaped at the node's end.
        down: from the switch to the node, shaped at the switch's end.
        seed: from which the kernel draws the link's jitter and losses, where it can be given one.
    """

    address: str
    mac: str
    up: Shape = field(default_factory=Shape)
    down: Shape = field(default_factory=Shape)
    seed: int = 0


@dataclass(frozen=True)
class NodeSpec:
    """One container.

    Attributes:
        name: unique in the run: ``ps``, ``evaluator``, ``w0`` ... ``w199``.
        role: what it executes; a ``probe`` measures a link and is no part of the plan.
        index: number of a worker, 0 for the others.
        device_class: the worker's class; empty for the others.
        link: None for a node without ``eth0``.
        cpu: CPUs it may use, or None for no limit.
        memory: memory it may use, or None for no limit.
        cpu_weight: share of a busy CPU relative to the other nodes (a worker has 1).
        uid: the unprivileged uid and gid the role runs under.
        cpuset: the CPUs it may use, or None for all.
        gpus: how many of the host's GPUs it has to itself.
    """

    name: str
    role: Role
    index: int
    device_class: str
    link: LinkSpec | None
    cpu: float | None
    memory: Size | None
    cpu_weight: int
    uid: int
    cpuset: CpuSet | None = None
    gpus: int = 0


@dataclass(frozen=True)
class NetworkSpec:
    """The switch that all links of a host meet in.

    Attributes:
        prefix: length of the subnet's prefix.
        missing: what to do where the kernel lacks netem and a link needs it.
        offload: segmentation offloads of the links (``auto``: off where a link has loss).
    """

    prefix: int = 16
    missing: Missing = "fail"
    offload: Offload = "auto"


@dataclass(frozen=True)
class Plan:
    """Everything a runtime needs to bring a run up, and nothing it has to compute itself.

    Attributes:
        run: the run's name, unique among the user's runs.
        nodes: the PS first, then the evaluator, then the workers by index.
        network: see NetworkSpec.
        launch: how roles start: forked from a warm template, or as cold processes.
        labels: shown by and searched in every runtime (``run``, ``scenario``).
    """

    run: str
    nodes: tuple[NodeSpec, ...]
    network: NetworkSpec
    launch: Launch
    labels: Mapping[str, str]

    def node(self, name: str) -> NodeSpec:
        """The node of that name.

        Raises:
            KeyError: there is none.
        """
        for node in self.nodes:
            if node.name == name:
                return node
        raise KeyError(name)

    @property
    def ps(self) -> NodeSpec:
        """The parameter server."""
        return self.nodes[0]

    @property
    def workers(self) -> tuple[NodeSpec, ...]:
        """The workers, by index."""
        return tuple(node for node in self.nodes if node.role == "worker")
