"""The contract of the runtimes: they create containers for a plan's nodes, and remove them.

A runtime starts the agent; what happens in a container from then on (links, roles, counters) is the
agent's work and the same in every runtime. A run is identified by its folder: every method except
``start`` works from any process, even after the process that started the run was killed.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol, Self

from testbed.errors import NodeError, TestbedError
from testbed.host.users import Users
from testbed.runtimes.agent.launch import Mount, NodeState
from testbed.runtimes.agent.settings import OnHangup, Template
from testbed.telemetry.folder import RunFolder
from testbed.values.topology import NodeSpec, Plan

STOP_SECONDS = 30.0
"""How long ``stop`` waits for processes and containers to end."""

HOSTNAME_BYTES = 63

NO_KAFKA = "not found; needed only for streams with `transport: kafka`"


@dataclass(frozen=True)
class Finding:
    """The result of one of ``testbed doctor``'s checks."""

    check: str
    # ``missing`` if `testbed up` would not work, ``warning`` if something would not
    level: Literal["ok", "warning", "missing"]
    found: str  # the actual state, and the expected one if it differs
    fix: str = ""  # how to fix it; empty if there is nothing to fix


@dataclass(frozen=True)
class Request:
    """A request to the agent or the engine during bring-up, as JSON; shown by ``testbed plan``."""

    to: str
    name: str
    body: Mapping[str, Any]


@dataclass(frozen=True)
class ContainerSpec:
    """What a container must provide before a node's role, which writes to ``log``, is launched."""

    node: NodeSpec
    mounts: tuple[Mount, ...]
    log: Path


def container_name(run: str, whose: str) -> str:
    """Return the name that a node's container, or the agent's, has on this host."""
    return f"testbed-{run}-{whose}"


@dataclass(frozen=True)
class Start:
    """How a run is started.

    Attributes:
        template: without modules for a run whose nodes all start cold.
        environment: added to the environment of the agent and of everything that it starts.
        deadline_seconds: how long the agent may take to become ready.
        users: where the nodes' uids come from; None to detect that.
        reads: folders outside the run folder that the template reads.
        waiting: entered only to wait for the agent: inside it, a signal handler may raise.
    """

    template: Template = field(default_factory=Template)
    environment: Mapping[str, str] = field(default_factory=dict)
    deadline_seconds: float = 60.0
    users: Users | None = None
    reads: tuple[Path, ...] = ()
    waiting: Callable[[], AbstractContextManager[None]] = nullcontext


@dataclass
class Lifeline(ABC):
    """Ties a started run to this process: if the process dies, the run ends, or see on_hangup."""

    folder: RunFolder
    _lock: int | None  # descriptor of the run's lock

    @abstractmethod
    def stop(self) -> None:
        """End the run and remove everything it has on this host. Idempotent.

        Raises:
            HostError: something could not be removed; names it.
        """

    @abstractmethod
    def _send(self, data: bytes) -> None:
        """Send data to the agent; ConnectionError if that has ended."""

    @abstractmethod
    def _hang_up(self) -> None:
        """Close the connection to the agent. Idempotent."""

    def on_hangup(self, action: OnHangup) -> None:
        """Set what the run does when this process closes the lifeline or dies.

        Raises:
            NodeError: the agent has ended.
        """
        try:
            self._send(f"{action}\n".encode())
        except ConnectionError:
            raise NodeError("the agent has ended.", hint="See logs/agent.log.") from None

    def explain(self) -> TestbedError | None:
        """Return what has happened to the run from outside, if its nodes or its agent were lost.

        None if no cause is known.
        """
        return None

    def close(self) -> None:
        """Release the run: from now on this process no longer holds the run folder's lock."""
        self._hang_up()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    @contextmanager
    def undone_on_failure(self) -> Iterator[None]:
        """Inside, the run is being started; if that fails, nothing of it is left."""
        try:
            yield
        except BaseException:
            with closing(self), suppress(TestbedError):  # the first error is more informative
                self.stop()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        """Stop and close."""
        with closing(self):
            self.stop()


class RuntimeDriver(Protocol):
    """One runtime."""

    def requests(
        self, plan: Plan, folder: RunFolder, start: Start, specs: Sequence[ContainerSpec]
    ) -> tuple[Request, ...]:
        """Return what ``start`` and ``contain`` will send with these arguments. Pure.

        Values that only the host knows (control groups, a pid) are left out.
        """

    def check(self, nodes: Iterable[NodeSpec]) -> Mapping[str, str]:
        """Reject nodes with settings that this user cannot apply on this host.

        Returns:
            The IDs of the images for their containers, by ``NodeSpec.image``; empty without images.

        Raises:
            HostError: a node has such a setting, or the runtime cannot be used.
        """

    def examine(self, *, workers: int, gpu: bool, broker: bool) -> Iterator[Finding]:
        """Check what this runtime requires in addition to what this user needs without an engine.

        Args:
            workers: number of workers of a run.
            gpu: whether it uses GPUs.
            broker: whether it has a broker.
        """

    def start(self, plan: Plan, folder: RunFolder, start: Start) -> Lifeline:
        """Start the run's agent; return once it answers at ``folder.control / "agent.sock"``.

        Raises:
            HostError: this host or user cannot run an agent; the message says what is missing.
            NodeError: the agent failed or did not answer in time; the message contains the last
                lines of its log.
        """

    def contain(
        self, plan: Plan, folder: RunFolder, specs: Sequence[ContainerSpec]
    ) -> Mapping[str, int]:
        """Create the containers that nodes will be launched into, all of them or none.

        Returns:
            The pid of each container's first process as the agent sees it, by node; empty if the
            agent itself creates them when it launches a node.

        Raises:
            HostError, NodeError: a container cannot be created; the message names it. All
                containers of the call have been removed.
            HostLostError: the engine of another host does not answer; names it.
        """

    def discard(self, folder: RunFolder, nodes: Sequence[str]) -> None:
        """Remove the containers of nodes that were not part of the plan and have finished."""

    def stop(self, folder: RunFolder) -> tuple[str, ...]:
        """End a run and remove everything it has, whatever process started it.

        Idempotent. Waits until the process that started the run has released it.

        Returns:
            The names of the other hosts on which something was removed.

        Raises:
            HostError: something could not be removed; names it.
            NodeError: the process that started the run does not release it.
        """

    def exec(self, folder: RunFolder, node: NodeState, command: Sequence[str]) -> int:
        """Run a command in a running node, with the node's restrictions; return its exit status."""

    def find(self) -> tuple[str, ...]:
        """Return the names of all runs that have something on this host, also without a folder."""

    def find_orphans(self) -> tuple[RunFolder, ...]:
        """Return the runs that have something on this host of which nothing is in charge.

        Their folder was deleted, or its lock is free.
        """
