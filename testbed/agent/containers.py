"""What holds a node together: made by the agent for its launch, or by a container engine before.

For both, the role is forked from the template and let go by the agent; they differ in what has to
be there first, what is entered, what keeps the link, and what has to be removed.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from testbed.agent.launch import LaunchSpec
from testbed.agent.records import NodeRecords
from testbed.agent.spawner import Placement
from testbed.errors import HostError, NodeError
from testbed.events.usage import ContainerUse
from testbed.host.cgroups import RunGroups
from testbed.host.group import ContainerGroups
from testbed.host.limits import Limits, nice_of
from testbed.host.process import Process, is_first
from testbed.host.stopping import continue_all, stop_all
from testbed.topology import NodeSpec

LINGER_SECONDS = 0.5
"""How long a container outlives its role, so that `docker logs` has shown all of the log."""


@dataclass
class OwnContainer:
    """Control groups and namespaces of the agent's making.

    ``records`` are for those who look for nodes from outside.
    """

    node: NodeSpec
    groups: RunGroups
    records: NodeRecords
    linger_seconds: float = 0.0
    _oom_kills: int = 0

    def prepare(self) -> Placement:
        """Make ready what the role is to enter, and say how; a TestbedError if it cannot be."""
        name = self.node.name
        self._oom_kills = self.groups.oom_kills(name)
        self.groups.check([self.node])
        self.groups.add(name, Limits.of(self.node))
        if self.groups.has("freezer"):
            self.groups.thaw(name)  # who enters a frozen group stands still, and the template
        nice = 0 if self.groups.has("cpu") else nice_of(self.node.cpu_weight)
        return Placement(tuple(self.groups.entrances(name)), nice=nice)

    def move_in(self, role: int) -> Process:
        """The role exists. Returns the process whose network namespace the link leads into."""
        process = Process.of(role)
        self.records.add(self.node.name, process)
        return process

    def ran_out_of_memory(self) -> bool:
        """Whether the kernel has killed in there, since ``prepare``, at the memory limit."""
        return self.groups.oom_kills(self.node.name) > self._oom_kills

    def has_ended(self) -> bool:
        """Whether what held the role together has ended before the role, and taken it along."""
        return False

    def freeze(self, role: int) -> None:
        """Stop all processes in there; NodeError where that is not for the agent to do."""
        if self.groups.has("freezer"):
            self.groups.freeze(self.node.name)
        else:
            stop_all(role)

    def is_frozen(self) -> bool:
        """Whether a control group makes all processes in there stand still."""
        return self.groups.has("freezer") and self.groups.is_frozen(self.node.name)

    def use(self) -> ContainerUse:
        """What has been used in there."""
        return self.groups.use(self.node.name)

    def thaw(self, role: int) -> None:
        """Let them go on; NodeError where that is not for the agent to do."""
        if self.groups.has("freezer"):
            self.groups.thaw(self.node.name)
        else:
            continue_all(role)

    def release(self, role: int) -> None:
        """Let them go on, whoever froze them."""
        self.thaw(role)

    def move_out(self) -> None:
        """The role has ended, and the namespaces with it; the groups end with the run."""

    def abandon(self, *, deadline: float) -> None:
        """The launch has failed: remove what ``prepare`` made by ``deadline`` (monotonic)."""
        self.records.remove(self.node.name)
        with suppress(HostError):  # the end of the run tries again, and says so if it fails
            self.groups.remove_node(self.node.name, deadline=deadline)


@dataclass
class GivenContainer:
    """A container that an engine has made; its first process keeps the namespaces.

    It does what OwnContainer does, some ``linger_seconds`` after the role's end.
    """

    node: NodeSpec
    first: Process
    linger_seconds: float = LINGER_SECONDS
    _groups: ContainerGroups = field(default_factory=ContainerGroups)
    _oom_kills: int = 0

    def prepare(self) -> Placement:
        self._check_alive()
        self._groups = ContainerGroups.of(self.first.pid)
        if self._groups.frozen():  # who enters stands still, and the template that waits for it
            raise NodeError(
                f"{self.node.name}: its container is paused.", hint="Unpause it: docker unpause"
            )
        self._oom_kills = self._groups.oom_kills()
        return Placement(self._groups.entrances(), container=self.first)

    def move_in(self, role: int) -> Process:
        self._check_alive()
        return self.first

    def ran_out_of_memory(self) -> bool:
        return self._groups.oom_kills() > self._oom_kills

    def has_ended(self) -> bool:
        # It has not yet: it waits for its last processes. But nothing of its own is left to it.
        try:
            return not Path(f"/proc/{self.first.pid}/cmdline").read_bytes()
        except (FileNotFoundError, ProcessLookupError):
            return True

    def freeze(self, role: int) -> None:
        raise self._engines_business("pause")

    def is_frozen(self) -> bool:
        return self._groups.frozen()

    def use(self) -> ContainerUse:
        return self._groups.use()

    def thaw(self, role: int) -> None:
        raise self._engines_business("unpause")

    def release(self, role: int) -> None:
        self._groups.thaw()

    def move_out(self) -> None:
        """End the container too, so that the engine shows that the node has ended."""
        self.first.send(signal.SIGTERM)

    def abandon(self, *, deadline: float) -> None:
        """Nothing to do: whoever made the container removes it."""

    def _check_alive(self) -> None:
        if not self.first.alive():
            raise NodeError(f"{self.node.name}: its container has ended.")

    def _engines_business(self, verb: str) -> NodeError:
        return NodeError(
            f"{self.node.name} lives in a container of Docker, which the agent does not {verb}.",
            hint=f"docker {verb}",
        )


Container = OwnContainer | GivenContainer
"""What one node lives in, from before its launch until its role has ended."""

Containers = Callable[[LaunchSpec], Container]
"""Finds, or says how to make, what a launch asks for."""


def own_containers(groups: RunGroups, records: NodeRecords) -> Containers:
    """Makes containers for a run whose agent makes them itself."""

    def contain(launch: LaunchSpec) -> OwnContainer:
        if launch.container is not None:
            raise NodeError(f"{launch.node.name}: this agent makes containers itself.")
        return OwnContainer(launch.node, groups, records)

    return contain


@dataclass
class GivenContainers:
    """The containers that an engine has made, by their first processes, as launches named them."""

    given: dict[str, Process] = field(default_factory=dict)

    def __call__(self, launch: LaunchSpec) -> GivenContainer:
        """The container that a launch names; NodeError if that is none, or another node's."""
        first = _first_process(launch)
        self.given[launch.node.name] = first
        return GivenContainer(launch.node, first)

    def end(self) -> None:
        """Kill every container, one that is paused too."""
        for first in self.given.values():
            with suppress(OSError, HostError):  # it has ended, and so its groups
                groups = ContainerGroups.of(first.pid)
                first.kill()
                groups.thaw()


def _first_process(launch: LaunchSpec) -> Process:
    """The process that a launch names, if it is what it has to be.

    A pid may be another process's by now: entering that would run the role anywhere on the host. So
    it has to be the first of a pid namespace below this one, and to have the node's uid.
    """
    name, pid = launch.node.name, launch.container
    if pid is None:
        raise NodeError(f"{name}: the launch names no container, and this agent makes none.")
    try:
        process = Process.of(pid)
        uid = Path(f"/proc/{pid}").stat().st_uid
    except (ProcessLookupError, FileNotFoundError):
        raise NodeError(f"{name}: its container has ended: there is no process {pid}.") from None
    if pid == 1 or not is_first(pid) or uid != launch.node.uid:
        raise NodeError(
            f"{name}: its container has ended: process {pid} is not the first of one of uid "
            f"{launch.node.uid}."
        )
    return process
