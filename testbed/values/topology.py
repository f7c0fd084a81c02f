"""The data model of runtimes, agent and network: nodes, links and the plan. Frozen dataclasses.

All values are in real units: rates and durations are already scaled by the scenario's
``time_scale``. Nothing here depends on algorithms, models or scenarios.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any, Literal

from testbed.values.cpu_sets import CpuSet
from testbed.values.fields import StrictModel
from testbed.values.units import Duration, Rate, Size


def matches(selector: str, *, name: str, device_class: str) -> bool:
    """Whether a selector, like ``w3``, ``w[0-9]`` or ``class=slow``, matches the node of this name.

    ``device_class`` is its class; empty for a node without one.
    """
    key, equals, wanted = selector.partition("=")
    if not equals:
        return fnmatchcase(name, selector)
    return key == "class" and bool(device_class) and fnmatchcase(device_class, wanted)


TrainingRole = Literal["server", "client", "peer", "aside"]
"""A node's part in the run: all other nodes talk to the server; what clients send and receive is
the run's traffic; a ``peer`` is a node of a workload, and talks to all others; ``aside`` is any
other node."""

End = Literal["fatal", "noticed", "expected"]
"""What it means if a node exits before training ends: the run fails; a notice, and the others
continue; or nothing, if the node exited successfully."""

Ending = End | Literal["restarted", "final"]
"""Like ``End``; ``restarted``: a killed node is started again; ``final``: the run ends well once
all final nodes have ended well."""

OWN_IMAGES = ("nodes", "kafka")
"""What stands for the image of this package and for Kafka's in ``NodeSpec.image``."""

LaunchMode = Literal["warm", "cold"]
Missing = Literal["fail", "warn"]
Offload = Literal["auto", "on", "off"]
Distribution = Literal["normal", "uniform", "pareto", "paretonormal"]

THIS_HOST = "localhost"

SCRATCH = Size(16 * 2**20)
"""The limit for nodes whose scenario does not set one."""


def inodes(scratch: int) -> int:
    """Return how many files a node may create in this much memory (bytes): one per KiB."""
    return scratch // 1024


class Direction(StrictModel):
    """One direction of a link; what is None is not shaped.

    Attributes:
        rate: bits per second of Ethernet frames.
        delay: one-way delay; requires netem.
        jitter: standard deviation of the delay; requires netem.
        loss: share of lost packets; requires netem.
        queue: time that a full queue takes to drain at ``rate``; None for the default.
        distribution: law of the jitter; None for normal.
        loss_correlation: correlation between the losses of successive packets, in [0, 1).
    """

    rate: Rate | None = None
    delay: Duration | None = None
    jitter: Duration | None = None
    loss: float | None = None
    queue: Duration | None = None
    distribution: Distribution | None = None
    loss_correlation: float | None = None

    @property
    def needs_netem(self) -> bool:
        """Whether this direction requires the kernel's netem."""
        return bool(self.delay) or bool(self.jitter) or bool(self.loss)

    def changed(self, **values: Any) -> Direction:
        """Return this direction with other values in the named fields."""
        return self.model_copy(update=values)

    def scaled(self, factor: float) -> Direction:
        """Return this direction at ``factor`` times the speed: its rate and times are scaled."""

        def shorter(seconds: Duration | None) -> Duration | None:
            return None if seconds is None else Duration(seconds / factor)

        return Direction(
            rate=None if self.rate is None else Rate(self.rate * factor),
            delay=shorter(self.delay),
            jitter=shorter(self.jitter),
            loss=self.loss,
            queue=shorter(self.queue),
            distribution=self.distribution,
            loss_correlation=self.loss_correlation,
        )


DEFAULT_MTU, LEAST_MTU, LARGEST_MTU = 1500, 576, 9000
"""Bytes of the largest IP packet: of Ethernet, what every host must accept, and of jumbo frames."""

FRAME_HEADER_BYTES = 14
SEGMENT_HEADERS_BYTES = 52
"""IPv4 and TCP headers with timestamps."""


def segment_bytes(*mtus: int | None) -> int:
    """Return the payload of TCP in a full packet between nodes with these MTUs; None: default."""
    return min(mtu or DEFAULT_MTU for mtu in mtus) - SEGMENT_HEADERS_BYTES


def frame_bytes(mtu: int | None) -> int:
    """Return the largest Ethernet frame of a link with this MTU, without its checksum."""
    return (mtu or DEFAULT_MTU) + FRAME_HEADER_BYTES


CORE = "core"
"""The switch of the nodes that name no other."""


@dataclass(frozen=True)
class LinkSpec:
    """A node's link to its switch, or a link between switches."""

    address: str  # IPv4 address of the node's ``eth0``
    mac: str  # 02:00 followed by the address's four bytes
    up: Direction = field(default_factory=Direction)  # from the node, shaped at the node's end
    down: Direction = field(default_factory=Direction)  # to the node, shaped at the switch's end
    seed: int = 0  # of the kernel's jitter and losses, where the kernel accepts one
    message: Size | None = None  # the largest message on this link; the default queues hold it
    mtu: int | None = None  # bytes of the largest IP packet, at both ends; None for 1,500
    switch: str = CORE  # to which it leads

    @property
    def frame_bytes(self) -> int:
        """The largest Ethernet frame, without its checksum."""
        return frame_bytes(self.mtu)

    @property
    def is_shaped(self) -> bool:
        """Whether one of its directions is shaped."""
        return any(s.rate is not None or s.needs_netem for s in (self.up, self.down))


@dataclass(frozen=True)
class Trunk:
    """A link between two switches: whatever nodes of one side send to the other shares it."""

    name: str  # unlike that of any node
    ends: tuple[str, str]  # two switches
    link: LinkSpec  # up from the first switch to the second, down back; without addresses


@dataclass(frozen=True)
class Gpu:
    """An NVIDIA GPU of the host."""

    index: int  # its number in nvidia-smi
    uuid: str  # its name for CUDA and the container toolkit, like GPU-5a1c...
    name: str  # its model
    memory: Size
    minor: int  # number of its device node, /dev/nvidia<minor>


INTERFACE = "eth0"
"""Of every node with a link, in the node."""

WhenAbsent = Literal["kill", "freeze", "partition"]
"""What is done to a node of a workload while it is absent: its process is ended, and started again
when it returns; its processes are frozen; or its link transfers nothing."""


@dataclass(frozen=True)
class NodeSpec:
    """A container."""

    name: str  # unique in the run: ``ps``, ``evaluator``, ``w0`` ... ``w199``
    role: str  # its kind of node, as named in testbed.plan.nodes
    index: int  # number of a worker, 0 for the others
    device_class: str  # the class of a worker or of a workload's node; empty for the others
    link: LinkSpec | None  # None for a node without ``eth0``
    cpu: float | None  # CPU limit, or None for no limit
    memory: Size | None  # memory limit, or None for no limit
    cpu_weight: int  # share of a busy CPU relative to other nodes (a worker has 1)
    uid: int  # the unprivileged uid and gid the role runs under
    cpuset: CpuSet | None = None  # the CPUs it may use, or None for all
    gpus: float = 0  # how many of the host's GPUs it has; below 1, its share of one
    dealt: tuple[Gpu, ...] = ()  # the GPUs that it was given, once the host's are known
    gpu_memory: float = 1.0  # the fraction of that GPU's memory for its tensors
    at_once: int = 1  # how many gradients each of its processes computes at once
    host: str = THIS_HOST  # name of its host
    part: TrainingRole = "aside"
    end: Ending = "fatal"
    command: tuple[str, ...] = ()  # its command, for a role without an entry point of ours
    image: str = "nodes"  # of its container: one of OWN_IMAGES, or a name with a tag
    scratch: Size = SCRATCH  # the size of its /tmp, and of its /dev/shm
    folders: tuple[str, ...] = ()  # of the host, mounted read-only at the same paths
    memory_estimate: Size | None = None  # set if the role alone does not determine it
    environment: Mapping[str, str] = field(default_factory=dict)  # added to its environment
    # shown read-only by their names; a relative path is inside the run folder
    files: tuple[str, ...] = ()
    when_absent: WhenAbsent | None = None  # of a workload's node with an availability

    @property
    def full_name(self) -> str:
        """The name with the class, such as ``w3 (class slow)``, for messages."""
        return f"{self.name} (class {self.device_class})" if self.device_class else self.name

    @property
    def has_users_image(self) -> bool:
        """Whether its container is made from an image of the user, without testbed in it."""
        return self.image not in OWN_IMAGES


@dataclass(frozen=True)
class HostSpec:
    """A host of a run over several.

    Attributes:
        name: unlike that of any other.
        address: at which the other hosts reach its end of the tunnel that joins their switches.
        engine: address of its engine: ``unix://``, ``ssh://``, ``tcp://`` or ``context:``.
        here: whether the controller runs on it.
        labels: of its node in the Swarm.
        cpus: its number of processors.
        memory: of the whole host; None if that is unknown.
        controller: the name of the host where the controller runs, if that is another one.
    """

    name: str
    address: str
    engine: str
    here: bool = False
    labels: Mapping[str, str] = field(default_factory=dict)
    cpus: float = 1
    memory: Size | None = None
    controller: str = ""


@dataclass(frozen=True)
class NetworkSpec:
    """The switches that connect all links of a host: the core, and those that trunks lead to."""

    prefix: int = 16  # length of the subnet's prefix
    missing: Missing = "fail"  # what to do if a link needs netem and the kernel lacks it
    offload: Offload = "auto"  # segmentation offloads; ``auto``: off where a link has loss
    trunks: tuple[Trunk, ...] = ()


@dataclass(frozen=True)
class Plan:
    """Everything a runtime needs to start a run; it computes nothing itself."""

    run: str  # the run's name, unique among the user's runs
    nodes: tuple[NodeSpec, ...]  # in start order: the PS first, the workers by index
    network: NetworkSpec
    launch: LaunchMode  # how roles start: forked from a warm template, or as cold processes
    labels: Mapping[str, str]  # shown by and searchable in every runtime (``run``, ``scenario``)
    runtime: Mapping[str, Any] = field(default_factory=dict)  # its name and options
    time_scale: float = 1.0  # emulated seconds per real second; already applied to all values here
    hosts: tuple[HostSpec, ...] = ()  # of a run over several, the controller's first

    def on(self, host: HostSpec) -> tuple[NodeSpec, ...]:
        """Return the nodes of one of the hosts."""
        return tuple(node for node in self.nodes if node.host == host.name)

    @property
    def here(self) -> tuple[NodeSpec, ...]:
        """The nodes on the controller's host: all of them, unless there are several hosts."""
        return self.on(self.hosts[0]) if self.hosts else self.nodes

    @property
    def wants_gpus(self) -> bool:
        """Whether any node has a GPU."""
        return any(node.gpus for node in self.nodes)

    def named(self, run: str) -> Plan:
        """Return the same plan under another run name."""
        return replace(self, run=run, labels={**self.labels, "run": run})

    def node(self, name: str) -> NodeSpec:
        """Return the node of this name.

        Raises:
            KeyError: it does not exist.
        """
        return {node.name: node for node in self.nodes}[name]

    def route(self, node: NodeSpec, to: NodeSpec) -> str:
        """Return the address of another host to which a node's frames for a node go; else empty."""
        addresses = {host.name: host.address for host in self.hosts}
        return "" if node.host == to.host else addresses[to.host]

    def launch_of(self, node: NodeSpec) -> LaunchMode:
        """Return how a node's role starts.

        Cold with a GPU: CUDA does not work in a process whose parent has used any of it.
        """
        return "cold" if node.gpus else self.launch

    def holds(self, node: NodeSpec) -> bool:
        """Return whether a node joins the training only once all are launched.

        Not one that starts cold: until it joins, nothing tells when the next one may start.
        """
        return node.part == "client" and self.launch_of(node) == "warm"

    @property
    def ps(self) -> NodeSpec:
        """The parameter server."""
        return next(node for node in self.nodes if node.part == "server")

    @property
    def server_host(self) -> str:
        """Name of the parameter server's host; empty in a plan without one."""
        return next((node.host for node in self.nodes if node.part == "server"), "")

    @property
    def workers(self) -> tuple[NodeSpec, ...]:
        """The workers, by index."""
        return tuple(node for node in self.nodes if node.part == "client")

    @property
    def devices(self) -> tuple[NodeSpec, ...]:
        """The nodes with a device class: the workers, or the nodes of a workload."""
        return tuple(node for node in self.nodes if node.device_class)
