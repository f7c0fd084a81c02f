"""The interface of the node roles, their common defaults, and node addresses on the switch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from ipaddress import IPv4Address
from pathlib import Path
from typing import ClassVar

from testbed.host.kafka import KafkaFiles
from testbed.runtimes.agent.launch import Mount
from testbed.scenario.direction import Link
from testbed.scenario.links import link_spec
from testbed.scenario.schema import Scenario
from testbed.scenario.workload import Workload
from testbed.telemetry.event import Event
from testbed.telemetry.folder import RunFolder
from testbed.telemetry.ps_events import Finished, Started
from testbed.values.seeds import stream
from testbed.values.topology import (
    CORE,
    End,
    Ending,
    LaunchMode,
    LinkSpec,
    NodeSpec,
    Plan,
    TrainingRole,
)

PREFIX = 16
FIRST_ADDRESS = IPv4Address("10.77.0.1")

PS_UID = 20000
EVALUATOR_UID = 20001
BROKER_UID = 20002
COMPUTE_UID = 20003
FIRST_WORKER_UID = 20010

INSIDE = Path("/run/testbed")
"""Folder of a node's inputs in the node."""

FIRST_OF_SIGNALS = 128
"""Added to a signal's number: exit status of a role that the signal asked to end."""

PYTHON_BYTES: dict[LaunchMode, int] = {"warm": 20_000_000, "cold": 150_000_000}
"""Private memory of our processes in addition to their vectors: forked from a process that has
imported everything, or importing everything themselves. Measured."""


CUDA_BYTES = 1_000_000_000
"""Memory of the host for CUDA's libraries and buffers in a process. An estimate, not measured."""


@dataclass(frozen=True)
class Inputs:
    """The host files of a run that its nodes read."""

    folder: RunFolder
    data: Path  # folder of the prepared data set
    own_files: bool  # whether they read user files, such as a model, if there are workers
    kafka: KafkaFiles | None = None  # unless the containers' image contains Kafka
    shared_compute: bool = False  # whether a node computes the gradients of all workers


class Role(ABC):
    """One kind of node."""

    name: ClassVar[str]  # unique among the roles
    part: ClassVar[TrainingRole] = "aside"  # its part in training
    # what its process calls, as ``module:function``; empty if the node has a command
    entry: ClassVar[str] = ""
    cpu_weight: ClassVar[int] = 1  # share of a busy CPU relative to a worker
    end: ClassVar[End] = "fatal"  # what the node's end before the end of training means
    needs: ClassVar[tuple[str, ...]] = ()  # roles whose nodes must be ready before
    # what the parameter server records when a node is ready; None: ready as soon as it runs
    reports: ClassVar[type[Event] | None] = None
    vectors: ClassVar[int] = 0  # number of copies of the model it holds
    other_bytes: ClassVar[int] = 0  # its other private memory, without the interpreter
    reads_run: ClassVar[bool] = True  # whether it can read the scenario and the data
    saves_memory: ClassVar[str] = ""  # fields other than its `memory` by which it needs less
    opens_socket: ClassVar[bool] = False  # whether it uses the PS's socket

    @abstractmethod
    def nodes(self, scenario: Scenario) -> Iterator[NodeSpec]:
        """Yield the nodes in a run of the scenario, with addresses, uids, limits and links."""

    def mounts(self, inputs: Inputs) -> tuple[Mount, ...]:
        """Return the parts of the run that a node sees: what every Python entry reads."""
        if not self.reads_run:
            return ()
        mounts = [
            Mount(inputs.folder.scenario, INSIDE / "scenario.yaml", writable=False),
            Mount(inputs.data, INSIDE / "data", writable=False),
        ]
        if inputs.own_files:
            mounts.append(Mount(inputs.folder.custom, INSIDE / "custom", writable=False))
        if self.opens_socket:
            writes = self.part == "server"
            mounts.append(Mount(inputs.folder.ps_sockets, INSIDE / "sockets", writable=writes))
        return tuple(mounts)

    def arguments(self, node: NodeSpec, plan: Plan, *, secret: str) -> Mapping[str, str]:
        """Return the arguments of its entry that are not common to all; ``secret`` makes tokens."""
        return {}

    def neighbours(self, node: NodeSpec, plan: Plan) -> tuple[NodeSpec, ...]:
        """Return the nodes that a node can reach over its link; workers cannot reach each other."""
        if node.link is None:
            return ()
        linked = (one for one in plan.nodes if one.link is not None and one.name != node.name)
        return tuple(other for other in linked if not (node.part == other.part == "client"))

    def memory_bytes(self, node: NodeSpec, plan: Plan, *, vector: int) -> int:
        """Return the expected private memory of a node, given the bytes of a ``vector``."""
        own = PYTHON_BYTES[plan.launch_of(node)] + (CUDA_BYTES if node.gpus else 0)
        return own + self.vectors * vector + self.other_bytes


def was_ended(status: int) -> bool:
    """Return whether the exit status of a role says that it was killed or stopped by a signal."""
    return status <= 0 or status > FIRST_OF_SIGNALS


def classify_exit(node: NodeSpec, status: int, *, seen: Collection[type[Event]]) -> Ending:
    """Classify the exit of a node, given the kinds of events of the parameter server until then.

    Before the training starts, the exit of a node is fatal, because other nodes wait for it; only
    the exit of a program is not, unless its `end` is fatal.
    """
    if status == 0 and (Finished in seen or node.end == "expected"):
        return "expected"
    if node.end == "restarted" and was_ended(status):
        return "restarted"
    if node.end in {"fatal", "restarted"} or not (Started in seen or node.command):
        return "fatal"
    return "noticed"


def address_of(number: int) -> tuple[str, str]:
    """Return the IPv4 and MAC address of the ``number``-th node on the switch; the PS is 0."""
    address = FIRST_ADDRESS + number
    return str(address), ":".join(f"{byte:02x}" for byte in (0x02, 0x00, *address.packed))


def link_at(
    number: int, scenario: Scenario | Workload, link: Link, *, switch: str = CORE
) -> LinkSpec:
    """Return the link of the ``number``-th node to its switch, in real units."""
    address, mac = address_of(number)
    seed = link_seed(scenario, address)
    spec = link_spec(link, address=address, mac=mac, time_scale=scenario.time_scale, seed=seed)
    return replace(spec, switch=switch)


def link_seed(scenario: Scenario | Workload, owner: str) -> int:
    """Return the seed of the jitter and the losses of a link: of a node's address, or a name."""
    return int(stream(scenario.seed, "link", owner).integers(2**53))  # exact in any JSON
