"""The agent's record of a run's nodes: launched, running, ended."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from testbed.errors import NodeError, TestbedError
from testbed.host.namespaces import inside
from testbed.host.process import Process, ended_child, has_ended, is_stopped
from testbed.network.attached import AttachedLink
from testbed.network.counters import (
    Carried,
    TrafficMeter,
    listening_ports,
    read_ports,
)
from testbed.network.sock_diag import read_queues
from testbed.network.switch import Switch
from testbed.runtimes.agent.containers import Container, Containers
from testbed.runtimes.agent.launch import Exit, LaunchSpec, NodeState
from testbed.runtimes.agent.link_changes import LinkChanges
from testbed.runtimes.agent.scrapes import Endpoint, Scraped, Scrapes
from testbed.runtimes.agent.spawner import Spawned, Spawner
from testbed.telemetry.event_kinds import LimitsChanged
from testbed.values.topology import INTERFACE, LinkSpec, NetworkSpec, NodeSpec, TrainingRole
from testbed.values.usage import Queue, Usage

CLEANUP_SECONDS = 5.0


@dataclass(frozen=True)
class RunningNode:
    """A running node: its role's pid, and that of a process in its network namespace."""

    spec: NodeSpec
    network: NetworkSpec
    pid: int
    anchor: int
    container: Container
    log: Path


@dataclass(frozen=True)
class PendingLaunch:
    """A launch whose processes the template is forking; leaving ``held`` cancels it."""

    launch: LaunchSpec
    container: Container
    spawned: Spawned
    held: ExitStack


@dataclass
class Nodes:
    """Every launched node; ``exits`` are those that have ended, in that order.

    ``meanwhile`` is called during a launch, once other nodes may be begun.
    """

    containers: Containers
    spawner: Spawner
    switch: Switch
    meter: TrafficMeter
    exits: list[Exit] = field(default_factory=list)
    _running: dict[str, RunningNode] = field(default_factory=dict)
    _linked: dict[str, tuple[Process, AttachedLink]] = field(default_factory=dict)
    _leaving: dict[str, tuple[float, Container]] = field(default_factory=dict)
    _partitioned: set[str] = field(default_factory=set)
    meanwhile: Callable[[], None] = lambda: None
    _begun: list[PendingLaunch] = field(default_factory=list)
    _launching: str = ""

    def __post_init__(self) -> None:
        self.changes = LinkChanges(self.relink)
        self.scrapes = Scrapes(self._socket_in)

    def launch(self, launch: LaunchSpec) -> int:
        """Launch a node; return the pid of its running role in this pid namespace.

        Raises:
            NodeError, HostError: it could not be launched; nothing of it is left.
        """
        self.begin(launch)
        begun = cast(PendingLaunch, self._find_begun(launch))
        self._begun.remove(begun)
        name, container, spawned = launch.node.name, begun.container, begun.spawned
        self._launching, pid = name, None
        try:
            with begun.held:
                pid = spawned.pid()
                self.meanwhile()
                anchor = container.on_role_started(pid)
                try:
                    self._connect(launch, anchor)
                finally:
                    spawned.prepared()  # if it failed, that is why it has no link
                spawned.release()
        except BaseException as failure:
            short = container.ran_out_of_memory()
            _undo(container, pid)
            if short:
                how = f"the kernel killed it at its limit of {launch.node.memory}"
                raise NodeError(f"{name} ran out of memory: {how}.") from failure
            raise
        finally:
            self._launching = ""
        self._running[name] = RunningNode(
            launch.node, launch.network, pid, anchor.pid, container, launch.log
        )
        return pid

    def begin(self, launch: LaunchSpec) -> None:
        """Have the template fork a node's processes, unless it did, for a later ``launch``.

        Raises:
            NodeError, HostError: they cannot be created; nothing of them is left.
        """
        if self._find_begun(launch) is not None:
            return
        name = launch.node.name
        if name in (self._launching, *self._running, *(b.launch.node.name for b in self._begun)):
            raise NodeError(f"{name} is already running.")
        launch.check()
        container = self.containers(launch)
        self._leaving.pop(name, None)  # an earlier role's, and perhaps the same container's
        with ExitStack() as held:
            try:
                spawned = held.enter_context(self.spawner.spawn(launch, container.prepare()))
            except BaseException:
                _undo(container, None)
                raise
            self._begun.append(PendingLaunch(launch, container, spawned, held.pop_all()))

    def drop_begun(self) -> None:
        """Undo what ``begin`` began, and ``launch`` did not continue."""
        while self._begun:
            begun, pid = self._begun.pop(), None
            with begun.held, suppress(OSError, TestbedError):
                pid = begun.spawned.pid()
            _undo(begun.container, pid)

    def _find_begun(self, launch: LaunchSpec) -> PendingLaunch | None:
        return next((one for one in self._begun if one.launch == launch), None)

    def pid(self, name: str) -> int:
        """Return the pid of a node's role, in this pid namespace; NodeError if it does not run."""
        try:
            return self._running[name].pid
        except KeyError:
            ended = next((e for e in reversed(self.exits) if e.node == name), None)
            state = f"ended with status {ended.status}" if ended else "was never launched"
            raise NodeError(f"{name} {state}.") from None

    def pids(self, part: TrainingRole) -> list[int]:
        """Return the pids, in this namespace, of the running nodes with this training role."""
        return [node.pid for node in self._running.values() if node.spec.part == part]

    def running(self) -> list[str]:
        """Return the names of the running nodes, in the order of their launches."""
        return list(self._running)

    def frozen(self) -> list[str]:
        """Return the names of the running nodes that are frozen, whatever froze them."""
        return [
            name
            for name, node in self._running.items()
            if is_stopped(node.pid) or node.container.is_frozen()
        ]

    def nodes(self) -> list[NodeState]:
        """Return the states of the running nodes, in the order of their launches."""
        frozen = set(self.frozen())
        return [
            NodeState(name, node.pid, name in frozen, node.container.entrances())
            for name, node in self._running.items()
        ]

    def reap(self) -> None:
        """Register every child that has ended."""
        names = {node.pid: name for name, node in self._running.items()}
        while (pid := ended_child()) is not None:
            name = names.get(pid)
            if name is not None:
                self.meter.release(name)
            status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            if name is not None:
                node = self._running.pop(name)
                self._partitioned.discard(name)
                self.spawner.logs.catch_up(node.log)  # for readers that are notified of the end
                left = node.container
                self.exits.append(Exit(name, status, left.ran_out_of_memory(), left.has_ended()))
                self._leaving[name] = (time.monotonic() + left.linger_seconds, left)
        self._clean_up()

    def due_in_seconds(self) -> float | None:
        """Return the seconds until ``do_due`` has work, if no child ends; None if never."""
        now = time.monotonic()
        moments = [max(0.0, moment - now) for moment, _ in self._leaving.values()]
        if (change := self.changes.due_in_seconds()) is not None:
            moments.append(change)
        return min(moments, default=None)

    def do_due(self) -> None:
        """Do the work planned for now: expire link changes, and clean up ended containers."""
        self.changes.expire()
        self._clean_up()

    def signal(self, node: str, number: signal.Signals, *, thaw: bool = False) -> None:
        """Send a signal to a node's role, and with ``thaw`` thaw the node so that it takes effect.

        Both in one request: in control groups of version 2, SIGKILL ends even a frozen process, and
        ``thaw`` by itself might then find no running node.
        """
        role = self.pid(node)
        os.kill(role, number)
        if thaw:
            with suppress(OSError):  # it has ended, and its groups with it
                self._running[node].container.thaw(role)

    def freeze(self, node: str) -> None:
        """Freeze a node's processes."""
        role = self.pid(node)
        self._running[node].container.freeze(role)

    def thaw(self, node: str) -> None:
        """Thaw a frozen node."""
        role = self.pid(node)
        self._running[node].container.thaw(role)

    def set_quota(self, node: str, cpus: float) -> None:
        """Change the CPU limit of a node, until its process ends."""
        self.pid(node)
        self._running[node].container.set_quota(cpus)

    def thaw_all(self) -> None:
        """Thaw all frozen nodes: the controller that would have thawed them has ended."""
        for name in self.frozen():
            with suppress(OSError, TestbedError):  # it has just ended
                self.thaw(name)

    def partition(self, node: str) -> None:
        """Block a node's link in both directions, without notifying either side."""
        self.pid(node)
        self.switch.set_forwarding(node, forwarding=False)
        self._partitioned.add(node)

    def heal(self, node: str) -> None:
        """Unblock a node's link."""
        self.pid(node)
        self.switch.set_forwarding(node, forwarding=True)
        self._partitioned.discard(node)

    def heal_all(self) -> None:
        """Unblock all links: the controller that would have unblocked them has ended."""
        for name in self._partitioned & self._running.keys():
            with suppress(OSError, TestbedError):  # it has just ended
                self.heal(name)

    def private_bytes(self, node: str) -> int:
        """Return the memory of a node's role that no other process shares."""
        text = Path(f"/proc/{self.pid(node)}/smaps_rollup").read_text()
        fields = (line.split() for line in text.splitlines() if line.startswith("Private_"))
        return 1024 * sum(int(words[1]) for words in fields)

    def listening(self, node: str) -> list[int]:
        """Return the TCP ports at which a node accepts calls of other nodes."""
        self.pid(node)
        return sorted(listening_ports(self._running[node].anchor))

    def scrape(self, wanted: list[Endpoint]) -> list[Scraped]:
        """Begin to read what these nodes serve at /metrics; return what is complete by now."""
        return self.scrapes.proceed(one for one in wanted if one.node in self._running)

    def _socket_in(self, node: str) -> socket.socket:
        with inside(self._running[node].anchor):
            return socket.socket(socket.AF_INET, socket.SOCK_STREAM)

    def carried(self) -> dict[str, Carried]:
        """Return what each running node's link has carried since it was created."""
        return {name: one for name, one in read_ports().items() if name in self._running}

    def usage(self) -> Usage:
        """Return queue contents and container usage; round trips are those of the last count."""
        running = self._running.values()
        addresses = {
            one.spec.link.address: name for name, one in self._running.items() if one.spec.link
        }
        trips = self.meter.round_trips.items()
        return Usage(
            round_trips={addresses[peer]: trip for peer, trip in trips if peer in addresses},
            down={name: one for name, one in read_queues().items() if name in self._running},
            up=self._server_queues(),
            containers={one.spec.name: one.container.use() for one in running},
        )

    def _server_queues(self) -> dict[str, Queue]:
        """Return the queue of the parameter server's own interface, while it runs."""
        for name, node in self._running.items():
            if node.spec.part == "server" and node.spec.link is not None:
                with suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
                    return {name: read_queues(node.anchor).get(INTERFACE, Queue(0, 0))}
        return {}

    def links(self, as_created: bool = False, only: Sequence[str] = ()) -> list[dict[str, Any]]:
        """Return the links of running nodes, as they are or were when created, and trunks."""
        read = self.switch.inspect
        found = [
            self._linked[name][1]
            if as_created
            else read(one.spec, pid=one.anchor, network=one.network)
            for name, one in self._running.items()
            if one.spec.link is not None and (not only or name in only)
        ]
        trunks = [one for one in self.switch.inspect_trunks() if not only or one.node in only]
        return [link.as_dict() for link in (*found, *trunks)]

    def links_of(self, names: Sequence[str]) -> dict[str, LinkSpec]:
        """Return the current links of trunks, and of those of the nodes that run.

        Raises:
            NodeError: none of them runs, or has a link.
        """
        trunks = self.switch.trunk_links()
        found = {name: trunks[name] for name in names if name in trunks} | {
            name: link
            for name in names
            if name in self._running and (link := self._running[name].spec.link) is not None
        }
        if not found:
            raise NodeError(f"none of {', '.join(names)} is running and has a link.")
        return found

    def limit_changes(self) -> list[LimitsChanged]:
        """Return the limits that others, as an engine's client, changed since the last call."""
        changes = {name: node.container.changed_limits() for name, node in self._running.items()}
        return [LimitsChanged(name, one) for name, one in changes.items() if one]

    def relink(self, name: str, link: LinkSpec) -> None:
        """Change the shapes of a running node's link, or of a trunk.

        Raises:
            NodeError: no such node runs, or its link cannot be changed.
        """
        if name in self.switch.trunk_links():
            self.switch.reshape_trunk(name, link)
            return
        self.pid(name)
        node = self._running[name]
        changed = replace(node, spec=replace(node.spec, link=link))
        self.switch.reshape(changed.spec, pid=node.anchor, network=node.network)
        self._running[name] = changed

    def end(self) -> None:
        """Kill every running role."""
        for node in self._running.values():
            with suppress(ProcessLookupError):  # it has just ended
                os.kill(node.pid, signal.SIGKILL)

    def _clean_up(self) -> None:
        now = time.monotonic()
        for name in [name for name, (moment, _) in self._leaving.items() if moment <= now]:
            _, container = self._leaving.pop(name)
            container.on_role_ended()

    def _connect(self, launch: LaunchSpec, anchor: Process) -> None:
        node = launch.node
        if node.link is None:
            return
        attached = node.name not in self._linked or self._linked[node.name][0] != anchor
        if attached:
            link = self.switch.attach(
                node, pid=anchor.pid, network=launch.network, neighbours=launch.neighbours
            )
            self._linked[node.name] = anchor, link
        else:  # by an earlier role, in the same container
            self.switch.reshape(node, pid=anchor.pid, network=launch.network)
        if node.part != "aside":
            self.meter.watch(node.name, pid=anchor.pid, part=node.part, attached=attached)


def _undo(container: Container, pid: int | None) -> None:
    """Kill the role, which ``reap`` waits for as for any other child, and remove the rest."""
    deadline = time.monotonic() + CLEANUP_SECONDS
    if pid is not None:
        descriptor = os.pidfd_open(pid)
        try:
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
            has_ended(descriptor, CLEANUP_SECONDS)
        finally:
            os.close(descriptor)
    container.abandon(deadline=deadline)
