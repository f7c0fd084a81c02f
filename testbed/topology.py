"""What a runtime, the agent and the network understand: nodes, links and the plan. Frozen data.

Everything here is in real units: rates and durations have been scaled by the scenario's
``time_scale`` already. Nothing here knows algorithms, models or scenarios.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from testbed.values.cpu_sets import CpuSet
from testbed.values.units import Duration, Rate, Size

Part = Literal["server", "client", "aside"]
"""What a node is to the training: all the others talk to the server; what clients send it, and get,
is the run's traffic; whatever else there is stands aside."""

End = Literal["fatal", "noticed", "expected"]
"""What a node's end before that of the training means: the run's end too; a notice, and the others
go on; or nothing, if it has gone well."""

Ending = End | Literal["restarted"]
"""And of one that is started again where it was killed."""

Image = Literal["nodes", "kafka"]
"""What an engine makes a node's container from: the image of this package, or Kafka's."""

LaunchMode = Literal["warm", "cold"]
Missing = Literal["fail", "warn"]
Offload = Literal["auto", "on", "off"]
Distribution = Literal["normal", "uniform", "pareto", "paretonormal"]

THIS_HOST = "localhost"

SCRATCH = Size(16 * 2**20)
"""Of a node whose scenario does not say how much it may write."""


def inodes(scratch: int) -> int:
    """How many files a node may make in so many bytes of memory: one for every KiB."""
    return scratch // 1024


@dataclass(frozen=True)
class Shape:
    """One direction of a link; a field that is None is not shaped."""

    rate: Rate | None = None  # bits per second of Ethernet frames
    delay: Duration | None = None
    jitter: Duration | None = None  # standard deviation of the delay
    loss: float | None = None  # share of packets lost, in [0, 1]
    # how long a full queue takes to drain at ``rate``; None for the default
    queue: Duration | None = None
    distribution: Distribution = "normal"  # law of the jitter
    loss_correlation: float | None = None  # between a packet's loss and the next one's, in [0, 1)
    message: Size | None = None  # the largest that passes here; the default queue holds it

    @property
    def needs_netem(self) -> bool:
        """Whether this direction can only be had with the kernel's netem."""
        return bool(self.delay) or bool(self.jitter) or bool(self.loss)


@dataclass(frozen=True)
class LinkSpec:
    """A node's one link to the switch."""

    address: str  # IPv4 address of the node's ``eth0``
    mac: str  # 02:00 followed by the address's four bytes
    up: Shape = field(default_factory=Shape)  # from the node, shaped at the node's end
    down: Shape = field(default_factory=Shape)  # to the node, shaped at the switch's end
    seed: int = 0  # the kernel draws jitter and losses from it, where it can be given one


@dataclass(frozen=True)
class NodeSpec:
    """One container."""

    name: str  # unique in the run: ``ps``, ``evaluator``, ``w0`` ... ``w199``
    role: str  # what kind of node it is, by the name that testbed.nodes has for it
    index: int  # number of a worker, 0 for the others
    device_class: str  # the worker's class; empty for the others
    link: LinkSpec | None  # None for a node without ``eth0``
    cpu: float | None  # CPUs it may use, or None for no limit
    memory: Size | None  # memory it may use, or None for no limit
    cpu_weight: int  # share of a busy CPU relative to the other nodes (a worker has 1)
    uid: int  # the unprivileged uid and gid the role runs under
    cpuset: CpuSet | None = None  # the CPUs it may use, or None for all
    gpus: int = 0  # how many of the host's GPUs it has to itself
    host: str = THIS_HOST  # name of the host that it runs on
    part: Part = "aside"
    end: Ending = "fatal"
    command: tuple[str, ...] = ()  # what it executes, where its role has no entry point of ours
    image: Image = "nodes"
    scratch: Size = SCRATCH  # what fits into its /tmp, and as much again into its /dev/shm
    folders: tuple[str, ...] = ()  # of the host, that it sees read-only at their own paths
    takes: Size | None = None  # memory it will need, where its role alone cannot tell


@dataclass(frozen=True)
class NetworkSpec:
    """The switch that all links of a host meet in."""

    prefix: int = 16  # length of the subnet's prefix
    missing: Missing = "fail"  # what to do where the kernel lacks netem and a link needs it
    offload: Offload = "auto"  # segmentation offloads; ``auto``: off where a link has loss


@dataclass(frozen=True)
class Plan:
    """Everything a runtime needs to bring a run up, and nothing it has to compute itself."""

    run: str  # the run's name, unique among the user's runs
    nodes: tuple[NodeSpec, ...]  # in the order of their start: the PS first, the workers by index
    network: NetworkSpec
    launch: LaunchMode  # how roles start: forked from a warm template, or as cold processes
    labels: Mapping[str, str]  # shown by and searched in every runtime (``run``, ``scenario``)
    runtime: Mapping[str, str] = field(default_factory=dict)  # its name and options
    time_scale: float = 1.0  # emulated seconds per real second, by which everything here was scaled

    def named(self, run: str) -> Plan:
        """The same plan for a run of another name."""
        return replace(self, run=run, labels={**self.labels, "run": run})

    def node(self, name: str) -> NodeSpec:
        """The node of that name.

        Raises:
            KeyError: there is none.
        """
        return {node.name: node for node in self.nodes}[name]

    @property
    def ps(self) -> NodeSpec:
        """The parameter server."""
        return next(node for node in self.nodes if node.part == "server")

    @property
    def workers(self) -> tuple[NodeSpec, ...]:
        """The workers, by index."""
        return tuple(node for node in self.nodes if node.part == "client")
