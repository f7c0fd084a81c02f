"""What holds a node together: created by the agent at the launch, or by a container engine before.

In both cases the role is forked from the template and released by the agent; they differ in what
must exist first, what is entered, what keeps the link, and what must be removed.
"""

from __future__ import annotations

import signal
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from testbed.errors import HostError, NodeError
from testbed.host.cgroups import RunGroups
from testbed.host.group import ContainerGroups
from testbed.host.limits import Limits, nice_of
from testbed.host.process import Process, continue_all, is_first, stop_all
from testbed.runtimes.agent.launch import LaunchSpec
from testbed.runtimes.agent.spawner import Placement
from testbed.values.topology import NodeSpec
from testbed.values.usage import ContainerUse

LINGER_SECONDS = 0.5
"""How long a container outlives its role, so that `docker logs` has shown the complete log."""


@dataclass
class Container(ABC):
    """The container of a node; it exists from before the launch until its role has ended.

    Attributes:
        node: the node.
        linger_seconds: how long it outlives its role.
        groups: its control groups; none if this user cannot create any.
    """

    node: NodeSpec
    linger_seconds: float = 0.0
    groups: ContainerGroups = field(default_factory=ContainerGroups)
    _oom_kills: int = 0

    @abstractmethod
    def prepare(self) -> Placement:
        """Prepare what the role will enter, and return how to; a TestbedError if that fails."""

    @abstractmethod
    def on_role_started(self, role: int) -> Process:
        """Return the process in whose network namespace the link ends."""

    @abstractmethod
    def has_ended(self) -> bool:
        """Return whether the container ended before the role, and thereby killed it."""

    @abstractmethod
    def entrances(self) -> tuple[Path, ...]:
        """Return the files into which a process writes 0 to join its control groups."""

    @abstractmethod
    def on_role_ended(self) -> None:
        """Clean up after the role and its namespaces have ended."""

    @abstractmethod
    def abandon(self, *, deadline: float) -> None:
        """Remove what ``prepare`` created, after a failed launch, by ``deadline`` (monotonic)."""

    def ran_out_of_memory(self) -> bool:
        """Return whether the kernel has OOM-killed in it, since ``prepare``, at its limit."""
        return self.groups.oom_kills() > self._oom_kills

    def is_frozen(self) -> bool:
        """Return whether a control group freezes all processes in it."""
        return self.groups.frozen()

    def use(self) -> ContainerUse:
        """Return the resources used in it."""
        return self.groups.use()

    def changed_limits(self) -> tuple[str, ...]:
        """Return the limits that were changed since ``prepare`` or the last call, as text."""
        return ()

    def set_quota(self, cpus: float) -> None:
        """Change its CPU limit; HostError if that cannot be enforced."""
        self.groups.set_quota(cpus)

    def freeze(self, role: int) -> None:
        """Freeze all processes in it."""
        if self.groups.serving("freezer"):
            self.groups.freeze()
        else:
            stop_all(role)

    def thaw(self, role: int) -> None:
        """Thaw all processes in it."""
        if self.groups.serving("freezer"):
            self.groups.thaw()
        else:
            continue_all(role)


@dataclass
class OwnContainer(Container):
    """Control groups and namespaces created by the agent; the groups end with the run."""

    run: RunGroups = field(kw_only=True)

    def prepare(self) -> Placement:
        self.groups = self.run.node(self.node.name)
        self._oom_kills = self.groups.oom_kills()
        self.run.check([self.node])
        self.run.add(self.node.name, Limits.of(self.node))
        self.groups.thaw()  # else the entering process, and so the template, freezes
        nice = 0 if self.run.has("cpu") else nice_of(self.node.cpu_weight)
        return Placement(self.entrances(), nice=nice)

    def on_role_started(self, role: int) -> Process:
        return Process.of(role)

    def entrances(self) -> tuple[Path, ...]:
        return tuple(self.run.entrances(self.node.name))

    def has_ended(self) -> bool:
        return False

    def on_role_ended(self) -> None:
        """Do nothing: nothing is left."""

    def abandon(self, *, deadline: float) -> None:
        with suppress(HostError):  # retried at the end of the run, which reports a failure
            self.run.remove_node(self.node.name, deadline=deadline)


@dataclass
class GivenContainer(Container):
    """A container that an engine created; its first process keeps the namespaces."""

    first: Process = field(kw_only=True)
    grouped: bool = field(kw_only=True)
    linger_seconds: float = LINGER_SECONDS
    _limits: dict[str, str] = field(default_factory=dict)

    def prepare(self) -> Placement:
        self._check_alive()
        if self.grouped:
            self.groups = ContainerGroups.of(self.first.pid)
        if self.groups.frozen():  # a process that enters freezes, and the template waits for it
            raise NodeError(
                f"{self.node.name}: its container is paused.",
                hint="Unpause it: docker unpause, or lxc-unfreeze",
            )
        self._oom_kills = self.groups.oom_kills()
        self._limits = self.groups.limits()
        return Placement(self.groups.entrances(), container=self.first)

    def on_role_started(self, role: int) -> Process:
        self._check_alive()
        return self.first

    def has_ended(self) -> bool:
        # Not yet: it waits for its last processes. But nothing of its own is left to it.
        try:
            return not Path(f"/proc/{self.first.pid}/cmdline").read_bytes()
        except (FileNotFoundError, ProcessLookupError):
            return True

    def entrances(self) -> tuple[Path, ...]:
        return self.groups.entrances()

    def changed_limits(self) -> tuple[str, ...]:
        before, now = self._limits, self.groups.limits()
        self._limits = before | now
        return tuple(
            f"{file}: {before[file]} -> {text}"
            for file, text in now.items()
            if before.get(file, text) != text
        )

    def set_quota(self, cpus: float) -> None:
        super().set_quota(cpus)
        self._limits = self.groups.limits()  # this change is the run's own

    def on_role_ended(self) -> None:
        """End the container too, so that the engine shows that the node has ended."""
        self.first.send(signal.SIGTERM)

    def abandon(self, *, deadline: float) -> None:
        """Do nothing: the engine's client removes the container."""

    def _check_alive(self) -> None:
        if not self.first.alive():
            raise NodeError(f"{self.node.name}: its container has ended.")


Containers = Callable[[LaunchSpec], Container]
"""Returns the container that a launch uses, found or yet to be created."""


def own_containers(groups: RunGroups) -> Containers:
    """Return the containers of a run whose agent creates them itself."""

    def contain(launch: LaunchSpec) -> OwnContainer:
        if launch.container is not None:
            raise NodeError(f"{launch.node.name}: this agent creates containers itself.")
        return OwnContainer(launch.node, run=groups)

    return contain


@dataclass
class GivenContainers:
    """The containers that an engine created, by the first process that a launch names.

    Attributes:
        grouped: whether each has control groups of its own.
        given: the first process of each, by node.
        find_all: finds the first processes of all, including those that no launch has named yet.
    """

    grouped: bool = True
    given: dict[str, Process] = field(default_factory=dict)
    find_all: Callable[[], Iterable[Process]] = tuple

    def __call__(self, launch: LaunchSpec) -> GivenContainer:
        """Return the container that a launch names; NodeError if it is none or another node's."""
        first = _first_process(launch)
        self.given[launch.node.name] = first
        return GivenContainer(launch.node, first=first, grouped=self.grouped)

    def end(self) -> None:
        """Kill every container, including paused ones."""
        for first in chain(self.given.values(), self.find_all()):
            with suppress(OSError, HostError):  # it has ended, and so have its groups
                groups = ContainerGroups.of(first.pid)
                first.kill()
                groups.thaw()


def _first_process(launch: LaunchSpec) -> Process:
    """Return the process that a launch names, after checking it.

    The pid may have been reused: entering that process would run the role anywhere on the host. So
    it must be the first process of a pid namespace below this one, and have the node's uid.
    """
    name, pid = launch.node.name, launch.container
    if pid is None:
        raise NodeError(f"{name}: the launch names no container, and this agent creates none.")
    try:
        process = Process.of(pid)
        uid = Path(f"/proc/{pid}").stat().st_uid
    except (ProcessLookupError, FileNotFoundError):
        raise NodeError(f"{name}: its container has ended: there is no process {pid}.") from None
    if pid == 1 or not is_first(pid) or uid != launch.node.uid:
        raise NodeError(
            f"{name}: its container has ended: process {pid} is not the first process of a "
            f"container with uid {launch.node.uid}."
        )
    return process
