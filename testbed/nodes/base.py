"""What every role of nodes has to say, what most say alike, and where nodes are on the switch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path
from typing import ClassVar

from testbed.agent.launch import Mount
from testbed.events.kinds import Event, Finished, Started
from testbed.host.kafka import KafkaFiles
from testbed.scenario.direction import Link
from testbed.scenario.links import link_spec
from testbed.scenario.schema import Scenario
from testbed.seeds import stream
from testbed.telemetry.folder import RunFolder
from testbed.topology import End, Ending, LaunchMode, LinkSpec, NodeSpec, Part, Plan

PREFIX = 16
FIRST_ADDRESS = IPv4Address("10.77.0.1")

PS_UID = 20000
EVALUATOR_UID = 20001
BROKER_UID = 20002
FIRST_WORKER_UID = 20010

INSIDE = Path("/run/testbed")
"""Where a node finds what it needs."""

FIRST_OF_SIGNALS = 128
"""From this status on a role was asked to end: the number of the signal is added to it."""

SERVICE_WEIGHT = 10
"""CPU weight of what all workers wait for."""

PYTHON_BYTES: dict[LaunchMode, int] = {"warm": 20_000_000, "cold": 150_000_000}
"""Memory of its own that a process of ours has beside its vectors: forked from one that has
imported everything, or having done so itself. Measured."""


@dataclass(frozen=True)
class Inputs:
    """What a run has on the host for its nodes to read."""

    folder: RunFolder
    data: Path  # folder of the prepared data set
    own_files: bool  # whether they read files of the user's own: a model, when workers are there
    kafka: KafkaFiles | None = None  # where no engine makes containers of an image with a Kafka


class Role(ABC):
    """One kind of node."""

    name: ClassVar[str]  # unique among the roles
    part: ClassVar[Part] = "aside"  # what it is to the training
    # what its process calls, as ``module:function``; empty where the node says a command
    entry: ClassVar[str] = ""
    cpu_weight: ClassVar[int] = 1  # share of a busy CPU relative to a worker
    end: ClassVar[End] = "fatal"  # what its node's end before the training's means
    needs: ClassVar[tuple[str, ...]] = ()  # roles whose nodes have to be ready before
    # what the parameter server writes down when a node is ready; None: it is as soon as it runs
    reports: ClassVar[type[Event] | None] = None
    vectors: ClassVar[int] = 0  # how many copies of the model it holds
    other_bytes: ClassVar[int] = 0  # memory of its own beside them and its interpreter
    reads_run: ClassVar[bool] = True  # whether it is shown the scenario and the data
    opens_socket: ClassVar[bool] = False  # of the PS, where that one listens

    @abstractmethod
    def nodes(self, scenario: Scenario) -> Iterator[NodeSpec]:
        """Those that a run of the scenario has, with addresses, uids, limits and links."""

    def mounts(self, inputs: Inputs) -> tuple[Mount, ...]:
        """What a node sees of the run: what every Python entry reads."""
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
        """What its entry is told beside what all are; the run's ``secret`` makes tokens."""
        return {}

    def neighbours(self, node: NodeSpec, plan: Plan) -> tuple[NodeSpec, ...]:
        """Whom a node may talk to over its link: everybody there, but no worker to another."""
        if node.link is None:
            return ()
        linked = (other for other in plan.nodes if other.link is not None and other != node)
        return tuple(other for other in linked if not (node.part == other.part == "client"))

    def memory_bytes(self, node: NodeSpec, plan: Plan, *, vector: int) -> int:
        """Private memory that a node is expected to need, where a ``vector`` takes these bytes."""
        return PYTHON_BYTES[plan.launch] + self.vectors * vector + self.other_bytes


def was_ended(status: int) -> bool:
    """Whether a role's status says that a signal has ended it, at once or by asking it to end."""
    return status <= 0 or status > FIRST_OF_SIGNALS


def meaning(node: NodeSpec, status: int, *, seen: Collection[type[Event]]) -> Ending:
    """What it means that a node has ended, after what the parameter server has written down.

    Before the training starts, others wait for every node but for one with a command of its own.
    """
    if status == 0 and (Finished in seen or node.end == "expected"):
        return "expected"
    if node.end == "restarted" and was_ended(status):
        return "restarted"
    if node.end in {"fatal", "restarted"} or not (Started in seen or node.command):
        return "fatal"
    return "noticed"


def address_of(number: int) -> tuple[str, str]:
    """IPv4 and MAC address of the ``number``-th node on the switch; the PS is number 0."""
    address = FIRST_ADDRESS + number
    return str(address), ":".join(f"{byte:02x}" for byte in (0x02, 0x00, *address.packed))


def link_at(number: int, scenario: Scenario, link: Link) -> LinkSpec:
    """The link of the ``number``-th node on the switch, in real units."""
    address, mac = address_of(number)
    seed = int(stream(scenario.seed, "link", address).integers(2**53))  # exact in any JSON
    return link_spec(link, address=address, mac=mac, time_scale=scenario.time_scale, seed=seed)
