"""What every role of nodes has to say, and what most of them say alike."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from testbed.agent.launch import Mount
from testbed.events.kinds import Event, Finished, Started
from testbed.scenario.schema import Scenario
from testbed.telemetry.folder import RunFolder
from testbed.topology import End, Launch, NodeSpec, Part, Plan

INSIDE = Path("/run/testbed")
"""Where a node finds what it needs."""

SERVICE_WEIGHT = 10
"""CPU weight of what all workers wait for."""

PYTHON_BYTES: dict[Launch, int] = {"warm": 20_000_000, "cold": 150_000_000}
"""Memory of its own that a process of ours has beside its vectors: forked from one that has
imported everything, or having done so itself. Measured."""


@dataclass(frozen=True)
class Inputs:
    """What a run has on the host for its nodes to read.

    Attributes:
        folder: the run's.
        data: folder of the prepared data set.
        own_files: whether there are files of the user's own: an algorithm, a model or a data set.
    """

    folder: RunFolder
    data: Path
    own_files: bool


class Role(ABC):
    """One kind of node.

    Attributes:
        name: unique among the roles.
        part: what it is to the training.
        entry: what its process calls, as ``module:function``; empty where the node says a command.
        cpu_weight: share of a busy CPU relative to a worker.
        end: what it means when a node of the role ends before the training has.
        needs: roles whose nodes have to be ready before a node of this one is started.
        reports: the event of the parameter server's that says that a node is ready: one that names
            the node, or one for all; None where it is ready as soon as it runs.
        vectors: how many copies of the model it holds.
        other_bytes: memory of its own beside them and its interpreter.
    """

    name: ClassVar[str]
    part: ClassVar[Part] = "aside"
    entry: ClassVar[str] = ""
    cpu_weight: ClassVar[int] = 1
    end: ClassVar[End] = "fatal"
    needs: ClassVar[tuple[str, ...]] = ()
    reports: ClassVar[type[Event] | None] = None
    vectors: ClassVar[int] = 0
    other_bytes: ClassVar[int] = 0

    @abstractmethod
    def nodes(self, scenario: Scenario) -> Iterator[NodeSpec]:
        """Those that a run of the scenario has, with addresses, uids, limits and links."""

    def mounts(self, inputs: Inputs) -> tuple[Mount, ...]:
        """What a node sees of the run: by default what every Python entry reads."""
        mounts = [
            Mount(inputs.folder.scenario, INSIDE / "scenario.yaml", writable=False),
            Mount(inputs.data, INSIDE / "data", writable=False),
        ]
        if inputs.own_files:
            mounts.append(Mount(inputs.folder.path / "custom", INSIDE / "custom", writable=False))
        return tuple(mounts)

    def neighbours(self, node: NodeSpec, plan: Plan) -> tuple[NodeSpec, ...]:
        """Whom a node talks to over its link: by default all but the workers."""
        if node.link is None:
            return ()
        others = (other for other in plan.nodes if other.part != "client" and other != node)
        return tuple(other for other in others if other.link is not None)

    def memory_bytes(self, node: NodeSpec, plan: Plan, *, vector: int) -> int:
        """Private memory that a node is expected to need.

        Args:
            node: the node.
            plan: the run's nodes.
            vector: bytes of one copy of the model.
        """
        return PYTHON_BYTES[plan.launch] + self.vectors * vector + self.other_bytes


def meaning(node: NodeSpec, status: int, *, seen: Collection[type[Event]]) -> End:
    """What it means that a node has ended.

    Args:
        node: the node.
        status: what it has ended with.
        seen: the kinds of events that the parameter server has written down so far.
    """
    if status == 0 and (Finished in seen or node.end == "expected"):
        return "expected"
    if node.end == "fatal" or Started not in seen:
        return "fatal"
    return "noticed"
