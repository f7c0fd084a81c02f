"""Watches the nodes of a run: those that have ended, what they print, their links and limits."""

from __future__ import annotations

import signal
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from testbed.errors import NodeError, TestbedError
from testbed.host.reports import read_tail
from testbed.plan.nodes import role_of
from testbed.reports.verdict import KEEP_CONTAINERS
from testbed.runtimes.agent.client import AgentClient
from testbed.runtimes.agent.launch import Exit
from testbed.runtimes.agent.logs import LOG_BYTES, is_full
from testbed.telemetry.event_kinds import Exited, LogFull
from testbed.telemetry.folder import RunFolder, deletion_error, find_deleted
from testbed.telemetry.host import HostSampler
from testbed.telemetry.record import Recorder
from testbed.values.topology import NodeSpec, Plan

LOG_LINES = 12

MOST_IN_VAIN = 3
"""Maximum number of restarts of a parameter server from the same checkpoint."""

MOST_RESTARTS = 3
WITHIN_SECONDS = 60.0
"""Any other node is restarted at most MOST_RESTARTS times within this window."""

COUNT_INTERVAL_SECONDS = 1.0
USAGE_INTERVAL_SECONDS = 5.0
HOSTS_INTERVAL_SECONDS = 5.0
LIMITS_INTERVAL_SECONDS = 5.0


@dataclass
class PlannedExits:
    """Nodes that faults have ended or frozen.

    Attributes:
        ending: nodes that were sent SIGTERM or SIGKILL.
        restarting: nodes that were killed temporarily; a fault restarts them.
        frozen: nodes that are frozen, either until they are thawed or because they crashed.
    """

    ending: set[str] = field(default_factory=set)
    restarting: set[str] = field(default_factory=set)
    frozen: set[str] = field(default_factory=set)

    def take(self, node: str) -> bool:
        """Return whether a node ended as planned; called once for each exit."""
        ended = node in self.ending
        self.ending.discard(node)
        return ended


@dataclass
class Restarter:
    """Restarts nodes that were killed, as long as the run makes progress.

    Attributes:
        run: its name.
        launch: starts a node under its previous name, address and link; returns its pid.
        clock: monotonic seconds.
        server: whether it restarts the parameter server, too.
    """

    run: str
    launch: Callable[[NodeSpec], int | None]
    clock: Callable[[], float]
    server: bool = False
    _from: int = -1  # the version of the checkpoint that the server was last started from
    _times: int = 0  # how often it was started from there
    _moments: dict[str, list[float]] = field(default_factory=dict)  # of restarts of other nodes

    def check_server(self, how: str, *, saved: int, log: str) -> None:
        """Count a restart after the server died; ``saved`` is the version of its checkpoint.

        Raises:
            NodeError: it was restarted from there too often; says how it died, with its log.
        """
        if saved != self._from:
            self._from, self._times = saved, 0
        if self._times == MOST_IN_VAIN:
            raise NodeError(
                f"{how}, for the {MOST_IN_VAIN + 1}th time since its checkpoint at update "
                f"{saved:,}: it makes no progress{log}",
                hint="More memory (`ps.memory`) or more frequent checkpoints "
                f"(`checkpoint.every`) may help. Full log: testbed logs {self.run} ps",
            )
        self._times += 1

    def check(self, node: str, how: str, *, log: str) -> None:
        """Count a restart after another node was killed.

        Raises:
            NodeError: it was killed too often recently; says how, with its log.
        """
        now = self.clock()
        lately = [at for at in self._moments.get(node, []) if now - at < WITHIN_SECONDS]
        if len(lately) == MOST_RESTARTS:
            times = f"for the {MOST_RESTARTS + 1}th time within {WITHIN_SECONDS:g} s"
            hint = f"Full log: testbed logs {self.run} {node}"
            raise NodeError(f"{how}, {times}: it is not restarted{log}", hint=hint)
        self._moments[node] = [*lately, now]


@dataclass
class Watch(ABC):
    """Polls a run, and records what is new."""

    plan: Plan
    folder: RunFolder
    recorder: Recorder
    agent: AgentClient
    clock: Callable[[], float]  # monotonic seconds
    planned_exits: PlannedExits = field(default_factory=PlannedExits, kw_only=True)
    metered: bool = field(default=False, kw_only=True)  # whether queues and usage are recorded
    ending: str = field(default="", init=False)  # why the run has ended, once it is finished
    _full: set[str] = field(default_factory=set, init=False)  # nodes with full logs
    host: HostSampler = field(default_factory=HostSampler, init=False)
    _counted: float = field(default=-COUNT_INTERVAL_SECONDS, init=False)
    _used: float = field(default=-USAGE_INTERVAL_SECONDS, init=False)
    _compared: float = field(default=-LIMITS_INTERVAL_SECONDS, init=False)
    _read_hosts: float = field(default=-HOSTS_INTERVAL_SECONDS, init=False)

    @property
    @abstractmethod
    def started(self) -> bool:
        """Whether the clock of the run has started, so that traffic is recorded."""

    @property
    @abstractmethod
    def finished(self) -> bool:
        """Whether the run needs its nodes no longer."""

    @abstractmethod
    def look(self) -> None:
        """Process what has happened since the last look.

        Raises:
            TestbedError: the run cannot continue, for example because a node has ended.
            HostError: the run's folder was deleted, or a part of it.
        """

    @abstractmethod
    def catch_up(self) -> None:
        """Process what nodes have recorded after the last look, without judging it."""

    @abstractmethod
    def count(self) -> None:
        """Record the kernel's counters and the host's load as traffic."""

    @abstractmethod
    def prepare_restart(self, node: NodeSpec) -> None:
        """Do what must be done before a node that a fault has ended starts again.

        Raises:
            NodeError: it cannot be started again.
        """

    def take_ended(self) -> list[Exit]:
        """Return the nodes that have ended since the last call; HostError if files are missing."""
        gone = find_deleted(self.folder)
        if gone is not None:  # what the nodes write now is lost
            raise deletion_error(gone)
        planned = {node.name for node in self.plan.nodes}
        return [one for one in self.agent.exits() if one.node in planned]  # others are probes

    def measure(self) -> None:
        """Take the readings that are due, once the run has started."""
        if self.started and self.clock() - self._counted >= COUNT_INTERVAL_SECONDS:
            self.count()
            if self.metered and self.clock() - self._used >= USAGE_INTERVAL_SECONDS:
                self._used = self.clock()
                self.recorder.usage(self.agent.usage())
            if self.clock() - self._compared >= LIMITS_INTERVAL_SECONDS:
                self.compare_limits()
            if self.plan.hosts and self.clock() - self._read_hosts >= HOSTS_INTERVAL_SECONDS:
                self.read_hosts()
        self.recorder.time_passed()

    def read_hosts(self) -> None:
        """Record the load and the clocks of the run's other hosts, if there are any."""
        self._read_hosts = self.clock()
        self.recorder.other_hosts(self.agent.other_hosts())

    def begin_count(self) -> None:
        """Note the time of a reading of the counters, and record changes of links."""
        self._counted = self.clock()
        for change in self.agent.link_changes():
            self.recorder.event(change)

    def compare_limits(self) -> None:
        """Record which limits of containers were changed from outside the run."""
        self._compared = self.clock()
        for change in self.agent.limit_changes():
            self.recorder.event(change)

    def look_at_logs(self) -> None:
        """Record which logs have become full."""
        for name in (node.name for node in self.plan.nodes):
            if name not in self._full and is_full(self.folder.log(name)):
                self._full.add(name)
                self.recorder.event(LogFull(name, LOG_BYTES))

    def record_exit(self, ended: Exit, **more: Any) -> None:
        """Record the end of a node."""
        outside = container_was_ended(ended)
        lost = bool(ended.lost)
        self.recorder.event(
            Exited(ended.node, ended.status, container_ended=outside, host_lost=lost, **more)
        )

    def failure(self, node: NodeSpec, ended: Exit) -> TestbedError:
        """Return the error to raise if a run cannot continue without the node that ended."""
        what = describe_exit(node, ended)
        if container_was_ended(ended):
            return NodeError(f"{what}.", hint=KEEP_CONTAINERS)
        return self.failed_with(NodeError, what, node.name)

    def failed_with(self, kind: type[TestbedError], what: str, node: str) -> TestbedError:
        """Return an error about a node, with the end of its log."""
        reach = self._reach(node) if kind is NodeError else ""
        return kind(
            f"{what}{quote_log(self.folder.log(node))}",
            hint=f"{reach}Full log: testbed logs {self.folder.name} {node}",
        )

    def _reach(self, node: str) -> str:
        """Return how to test the way from a node's host to the parameter server's; may be empty."""
        host, server = self.plan.node(node).host, self.plan.server_host
        if self.started or host == server:
            return ""
        doctor = f"testbed doctor {self.folder.scenario}"
        return f"`{doctor}` tests whether {host} and {server} reach each other. "

    def quote_log_of(self, ended: Exit) -> str:
        """Return the log of a node that ended, unless that cannot say why it did."""
        return "." if container_was_ended(ended) else quote_log(self.folder.log(ended.node))


def container_was_ended(ended: Exit) -> bool:
    """Return whether a node was ended with its container, from outside the run."""
    return ended.container_ended and ended.status < 0 and not ended.out_of_memory


def describe_exit(node: NodeSpec, ended: Exit) -> str:
    """Return how a node ended, as a sentence without its full stop."""
    status = ended.status
    if ended.lost:
        return f"{node.name}: its host {node.host} is lost: {ended.lost}"
    if ended.out_of_memory:
        limit = node.memory or "half of the host's memory, as its `memory` is not set"
        cure = role_of(node).saves_memory
        how = f"{node.name} ran out of memory: the kernel killed it at its limit of {limit}"
        return f"{how}; it needs less with {cure}" if cure else how
    if status >= 0:
        return f"{node.name} exited with status {status}"
    if container_was_ended(ended):
        return f"{node.name}: its container was stopped or removed"
    names = {number.value: number.name for number in signal.Signals}
    return f"{node.name} was ended by {names.get(-status, f'signal {-status}')}"


def quote_log(path: Path) -> str:
    """Return the last lines of a node's log, to append to an error message."""
    try:
        lines = read_tail(path, lines=LOG_LINES)
    except OSError:
        lines = []
    quoted = "".join(f"\n    {line}" for line in lines)
    return f"; it printed:{quoted}" if lines else "; it printed nothing."
