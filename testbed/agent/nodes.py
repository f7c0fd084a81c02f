"""The nodes of a run, as the agent knows them: launched, running, ended."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from testbed.agent.launch import Exit, Launch
from testbed.agent.link_changes import LinkChanges
from testbed.agent.spawner import Spawner
from testbed.errors import HostError, NodeError
from testbed.network.counters import Traffic, TrafficMeter
from testbed.network.switch import Switch
from testbed.runtimes.cgroups import RunGroups
from testbed.runtimes.limits import Limits, nice_of
from testbed.runtimes.process import Process, has_ended
from testbed.runtimes.roster import Roster
from testbed.runtimes.standstill import go_on, stop_all
from testbed.topology import LinkSpec, NetworkSpec, NodeSpec, Role

CLEANUP_SECONDS = 5.0


@dataclass(frozen=True)
class RunningNode:
    """A node that was launched and has not ended.

    Attributes:
        spec: its place in the plan.
        network: what its link was made for.
        pid: its role's, in this pid namespace.
        oom_kills: how often its control group had run out of memory before.
    """

    spec: NodeSpec
    network: NetworkSpec
    pid: int
    oom_kills: int


@dataclass
class Nodes:
    """Every node that was launched.

    Attributes:
        groups: the run's control groups.
        roster: where nodes are put on record for those outside.
        spawner: makes containers.
        switch: where their links meet.
        meter: counts what the links carry.
        exits: the nodes that have ended, in that order.
        changes: what was changed at their links.
    """

    groups: RunGroups
    roster: Roster
    spawner: Spawner
    switch: Switch
    meter: TrafficMeter
    exits: list[Exit] = field(default_factory=list)
    changes: LinkChanges = field(default_factory=LinkChanges)
    _running: dict[str, RunningNode] = field(default_factory=dict)

    def launch(self, launch: Launch) -> int:
        """Bring a node up; returns the role's pid in this pid namespace, the role running.

        Raises:
            NodeError, HostError: it could not be brought up; nothing of it is left.
        """
        name = launch.node.name
        if name in self._running:
            raise NodeError(f"{name} runs already.")
        launch.check()
        pid = None
        oom_kills = self.groups.oom_kills(name)
        try:
            self.groups.check([launch.node])
            self.groups.add(name, Limits.of(launch.node))
            if self.groups.has("freezer"):
                self.groups.thaw(name)  # who enters a frozen group stands still, and the template
            nice = 0 if self.groups.has("cpu") else nice_of(launch.node.cpu_weight)
            entrances = self.groups.entrances(name)
            with self.spawner.spawn(launch, entrances, nice=nice) as newborn:
                pid = newborn.pid()
                self.roster.add(name, Process.of(pid))
                self._connect(launch, pid)
                newborn.let_go()
        except BaseException as failure:
            short = self.groups.oom_kills(name) > oom_kills
            self._undo(name, pid)
            if short:
                how = f"the kernel killed it at its limit of {launch.node.memory}"
                raise NodeError(f"{name} ran out of memory: {how}.") from failure
            raise
        self._running[name] = RunningNode(launch.node, launch.network, pid, oom_kills)
        return pid

    def pid(self, name: str) -> int:
        """The pid of a running node's role, in this pid namespace.

        Raises:
            NodeError: no such node runs.
        """
        try:
            return self._running[name].pid
        except KeyError:
            ended = next((e for e in reversed(self.exits) if e.node == name), None)
            state = f"ended with status {ended.status}" if ended else "was never launched"
            raise NodeError(f"{name} {state}.") from None

    def pids(self, role: Role) -> list[int]:
        """The pids of the running nodes of a role, in this pid namespace."""
        return [node.pid for node in self._running.values() if node.spec.role == role]

    def running(self) -> list[str]:
        """The names of the nodes that run, in the order of their launches."""
        return list(self._running)

    def reap(self) -> None:
        """Take notice of every child that has ended."""
        names = {node.pid: name for name, node in self._running.items()}
        while (pid := _ended_child()) is not None:
            name = names.get(pid)
            if name is not None:
                self.meter.release(name)
            status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            if name is not None:
                ended = self._running.pop(name)
                short = self.groups.oom_kills(name) > ended.oom_kills
                self.exits.append(Exit(name, status, out_of_memory=short))

    def send_signal(self, name: str, number: int) -> None:
        """Send a signal to a node's role."""
        os.kill(self.pid(name), number)

    def freeze(self, name: str) -> None:
        """Stop a node's processes where they are."""
        pid = self.pid(name)
        if self.groups.has("freezer"):
            self.groups.freeze(name)
        else:
            stop_all(pid)

    def thaw(self, name: str) -> None:
        """Let a frozen node go on."""
        if self.groups.has("freezer"):
            self.groups.thaw(name)
        else:
            go_on(self.pid(name))

    def private_bytes(self, name: str) -> int:
        """Memory of a node's role that it shares with no other process.

        Raises:
            NodeError: no such node runs.
        """
        text = Path(f"/proc/{self.pid(name)}/smaps_rollup").read_text()
        fields = (line.split() for line in text.splitlines() if line.startswith("Private_"))
        return 1024 * sum(int(words[1]) for words in fields)

    def count(self) -> Traffic:
        """What the links have carried."""
        return self.meter.read()

    def links(self) -> list[dict[str, Any]]:
        """Every running node's link, as it was asked for and as the kernel has it now."""
        linked = [node for node in self._running.values() if node.spec.link is not None]
        found = (
            self.switch.inspect(node.spec, pid=node.pid, network=node.network) for node in linked
        )
        return [link.as_dict() for link in found]

    def links_of(self, names: Sequence[str]) -> dict[str, LinkSpec]:
        """The links of those of the nodes that run, as they are now.

        Raises:
            NodeError: none of them runs, or has a link.
        """
        found = {
            name: link
            for name in names
            if name in self._running and (link := self._running[name].spec.link) is not None
        }
        if not found:
            raise NodeError(f"none of {', '.join(names)} runs and has a link.")
        return found

    def relink(self, name: str, link: LinkSpec) -> None:
        """Give a running node's link another shape.

        Raises:
            NodeError: no such node runs, or its link cannot be changed.
        """
        self.pid(name)
        node = self._running[name]
        changed = replace(node, spec=replace(node.spec, link=link))
        self.switch.reshape(changed.spec, pid=node.pid, network=node.network)
        self._running[name] = changed

    def _connect(self, launch: Launch, pid: int) -> None:
        node = launch.node
        if node.link is None:
            return
        self.switch.attach(node, pid=pid, network=launch.network, neighbours=launch.neighbours)
        if node.role != "probe":  # what measures a link is no part of what the run carried
            self.meter.watch(node.name, pid=pid, is_server=node.role == "ps")

    def _undo(self, name: str, pid: int | None) -> None:
        deadline = time.monotonic() + CLEANUP_SECONDS
        if pid is not None:
            _kill(pid, deadline - time.monotonic())
        self.roster.remove(name)
        with suppress(HostError):  # the end of the run tries again, and says so if it fails
            self.groups.remove_node(name, deadline=deadline)


def end_all_others(groups: RunGroups) -> None:
    """Kill every process of this pid namespace but this one, the first, and wait for them."""
    with suppress(ProcessLookupError):
        os.kill(-1, signal.SIGKILL)
    groups.thaw_all()
    with suppress(ChildProcessError):
        while True:
            os.wait()


def _kill(pid: int, within_seconds: float) -> None:
    """Kill a role and wait until it has ended; ``reap`` waits for it as for any other child."""
    descriptor = os.pidfd_open(pid)
    try:
        signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        has_ended(descriptor, within_seconds)
    finally:
        os.close(descriptor)


def _ended_child() -> int | None:
    """A child that has ended and has not been waited for."""
    try:
        found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return None
    return None if found is None else found.si_pid
