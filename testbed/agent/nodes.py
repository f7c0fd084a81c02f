"""The nodes of a run, as the agent knows them: launched, running, ended."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from testbed.agent.launch import Exit, Launch
from testbed.agent.spawner import Spawner
from testbed.errors import HostError, NodeError
from testbed.network.counters import Traffic, TrafficMeter
from testbed.network.switch import Switch
from testbed.runtimes.cgroups import RunGroups
from testbed.runtimes.limits import Limits
from testbed.runtimes.process import has_ended
from testbed.topology import NetworkSpec, NodeSpec

CLEANUP_SECONDS = 5.0


@dataclass(frozen=True)
class RunningNode:
    """A node that was launched and has not ended.

    Attributes:
        spec: its place in the plan.
        network: what its link was made for.
        pid: its role's, in this pid namespace.
    """

    spec: NodeSpec
    network: NetworkSpec
    pid: int


@dataclass
class Nodes:
    """Every node that was launched.

    Attributes:
        groups: the run's control groups.
        spawner: makes containers.
        switch: where their links meet.
        meter: counts what the links carry.
        exits: the nodes that have ended, in that order.
    """

    groups: RunGroups
    spawner: Spawner
    switch: Switch
    meter: TrafficMeter
    exits: list[Exit] = field(default_factory=list)
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
        try:
            self.groups.add(name, Limits.of(launch.node))
            self.groups.thaw(name)  # who enters a frozen group stands still, the template behind it
            with self.spawner.spawn(launch, self.groups.entrances(name)) as newborn:
                pid = newborn.pid()
                self._connect(launch, pid)
                newborn.let_go()
        except BaseException:
            self._undo(name, pid)
            raise
        self._running[name] = RunningNode(launch.node, launch.network, pid)
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
                del self._running[name]
                self.exits.append(Exit(name, status))

    def send_signal(self, name: str, number: int) -> None:
        """Send a signal to a node's role."""
        os.kill(self.pid(name), number)

    def freeze(self, name: str) -> None:
        """Stop a node's processes where they are."""
        self.pid(name)
        self.groups.freeze(name)

    def thaw(self, name: str) -> None:
        """Let a frozen node go on."""
        self.groups.thaw(name)

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

    def _connect(self, launch: Launch, pid: int) -> None:
        node = launch.node
        if node.link is None:
            return
        self.switch.attach(node, pid=pid, network=launch.network, neighbours=launch.neighbours)
        self.meter.watch(node.name, pid=pid, is_server=node.role == "ps")

    def _undo(self, name: str, pid: int | None) -> None:
        deadline = time.monotonic() + CLEANUP_SECONDS
        if pid is not None:
            _kill(pid, deadline - time.monotonic())
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
