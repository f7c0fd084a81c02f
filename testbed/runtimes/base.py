"""What every runtime does: it makes containers for a plan's nodes, and gets rid of them again.

A runtime starts the agent; what happens in a container from then on (links, roles, counters) is the
agent's work and the same in every runtime. A run is named by its folder: everything but ``start``
works from another process than the one that started the run, and after that one was killed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol, Self

from testbed.agent.launch import Mount
from testbed.agent.settings import OnHangup, Template
from testbed.errors import TestbedError
from testbed.host.users import Users
from testbed.telemetry.folder import RunFolder
from testbed.topology import NodeSpec, Plan

Condition = Literal["running", "frozen", "ended"]

STOP_SECONDS = 30.0
"""How long ``stop`` waits for what it ends."""


@dataclass(frozen=True)
class Request:
    """What a bring-up sends to the agent or the engine, as JSON; shown by ``testbed plan``."""

    to: str
    name: str
    body: Mapping[str, Any]


@dataclass(frozen=True)
class ContainerSpec:
    """What a container has to have before a node's role, which writes to ``log``, is launched."""

    node: NodeSpec
    mounts: tuple[Mount, ...]
    log: Path


@dataclass(frozen=True)
class Start:
    """How a run is started.

    Attributes:
        template: without modules for a run whose nodes all start cold.
        environment: added to the environment of the agent and of everything that it starts.
        deadline_seconds: by when the agent must be ready.
        users: where the nodes' uids come from; None to find out.
        reads: folders outside the run's that the template reads.
    """

    template: Template = field(default_factory=Template)
    environment: Mapping[str, str] = field(default_factory=dict)
    deadline_seconds: float = 60.0
    users: Users | None = None
    reads: tuple[Path, ...] = ()


@dataclass(frozen=True)
class NodeState:
    """A node as the host sees it; ``pid`` is its first process here, None if it has ended."""

    node: str
    condition: Condition
    pid: int | None


@dataclass(frozen=True)
class HostState:
    """What there is of a run on this host: ended nodes too, as long as its agent is alive."""

    alive: bool
    nodes: tuple[NodeState, ...]


class Lifeline(ABC):
    """What ties a started run to this process: if that dies, the run ends, or ``on_hangup``."""

    @abstractmethod
    def ended(self) -> bool:
        """Whether the agent has ended; then no node lives any more."""

    @abstractmethod
    def stop(self) -> None:
        """End the run and remove everything it has on this host. Stopping twice is harmless.

        Raises:
            HostError: something cannot be removed; names it.
        """

    @abstractmethod
    def on_hangup(self, action: OnHangup) -> None:
        """Say what the run is to do when this process closes the lifeline, or dies.

        Raises:
            NodeError: the agent has ended.
        """

    @abstractmethod
    def explain(self) -> TestbedError | None:
        """What has happened to the run from outside, where its nodes or its agent were lost.

        None if nothing is known of that.
        """

    @abstractmethod
    def close(self) -> None:
        """Let go of the run: from now on its folder's lock is no longer held by this process."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        """Stop and close."""
        try:
            self.stop()
        finally:
            self.close()


class RuntimeDriver(Protocol):
    """One runtime."""

    def requests(
        self, plan: Plan, folder: RunFolder, start: Start, specs: Sequence[ContainerSpec]
    ) -> tuple[Request, ...]:
        """What ``start`` and ``contain`` will send with these arguments. Pure: asks nobody.

        What only the host can tell (control groups, a pid) is left out.
        """

    def check(self, nodes: Iterable[NodeSpec]) -> None:
        """Refuse what these nodes ask for and this user cannot have on this host.

        Raises:
            HostError: a node has such a limit, or the runtime cannot be used; names the cure.
        """

    def start(self, plan: Plan, folder: RunFolder, start: Start) -> Lifeline:
        """Start the run's agent; returns once it answers at ``folder.control / "agent.sock"``.

        Raises:
            HostError: this host or user cannot do it; says what is missing.
            NodeError: the agent failed or was late; holds the last lines of its log.
        """

    def contain(
        self, plan: Plan, folder: RunFolder, specs: Sequence[ContainerSpec]
    ) -> Mapping[str, int]:
        """Make the containers that nodes will be launched into, all of them or none.

        Returns:
            The pid of each one's first process as the agent sees it, by node; empty where the agent
            makes them itself when it launches a node.

        Raises:
            HostError, NodeError: one cannot be made; names it. Nothing of them is left.
        """

    def discard(self, folder: RunFolder, nodes: Sequence[str]) -> None:
        """Remove the containers of nodes that were no part of the plan and have done their work."""

    def stop(self, folder: RunFolder) -> None:
        """End a run and remove everything it has on this host, whoever started it.

        Idempotent. Waits until the process that started the run has let go of it.

        Raises:
            HostError: something cannot be removed; names it.
            NodeError: the process that started the run does not let go of it.
        """

    def exec(self, folder: RunFolder, node: str, command: Sequence[str]) -> int:
        """Run a command in a node that runs, with its restrictions; returns its exit status."""

    def state(self, folder: RunFolder) -> HostState:
        """What there is of a run on this host now."""

    def freeze(self, folder: RunFolder, node: str) -> None:
        """Stop a node's processes where they are; NodeError if there is none, or it goes on."""

    def thaw(self, folder: RunFolder, node: str) -> None:
        """Let a frozen node go on; NodeError if there is no such node."""

    def find(self) -> tuple[str, ...]:
        """The names of all runs that have something on this host, with or without a folder."""

    def find_orphans(self) -> tuple[RunFolder, ...]:
        """Runs that have something on this host, and whose folder has been deleted."""
