"""Watches a run: the PS's records, the nodes that have ended, the traffic of the links."""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from testbed.errors import AlgorithmError, NodeError, TestbedError, UserCodeError
from testbed.host.isolation import early_exit
from testbed.host.reports import read_tail
from testbed.plan.nodes import role_of
from testbed.plan.nodes.base import FIRST_OF_SIGNALS, classify_exit, was_ended
from testbed.run.worker_status import WorkerStatusReporter
from testbed.runtimes.agent.client import AgentClient
from testbed.runtimes.agent.launch import Exit
from testbed.runtimes.agent.logs import LOG_BYTES, is_full
from testbed.telemetry.entry import FROM_PS
from testbed.telemetry.event import Event
from testbed.telemetry.event_kinds import (
    Exited,
    Finished,
    Joined,
    Launched,
    LogFull,
    Phase,
    Restored,
    Saved,
    Started,
)
from testbed.telemetry.events import follow_ps_events
from testbed.telemetry.folder import RunFolder, deletion_error, find_deleted
from testbed.telemetry.host import HostSampler
from testbed.telemetry.record import Recorder
from testbed.telemetry.spool import SpoolReader
from testbed.telemetry.untrusted import SpoiledError
from testbed.values.topology import NodeSpec, Plan

LOG_LINES = 12
FAILURES: dict[int, type[TestbedError]] = {
    kind.exit_code: kind for kind in (AlgorithmError, UserCodeError)
}
"""If an error in an algorithm or in user code ends a node, the run has its exit status."""

REPORTED = frozenset(
    (TestbedError.exit_code, *(k.exit_code for k in TestbedError.__subclasses__()))
)
"""Exit statuses of a role that has reported why it ended."""

FAULTS = frozenset(
    (signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGSEGV, signal.SIGTRAP)
)
"""Signals that a process causes itself."""

MOST_IN_VAIN = 3
"""Maximum number of restarts of a parameter server from the same checkpoint."""

MOST_RESTARTS = 3
WITHIN_SECONDS = 60.0
"""Any other node is restarted at most MOST_RESTARTS times within this window."""

KEEP_CONTAINERS = "Run the scenario again, and do not stop or remove its containers."

COUNT_INTERVAL_SECONDS = 1.0
USAGE_INTERVAL_SECONDS = 5.0
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
class Watch:
    """Polls a run, and records what is new."""

    plan: Plan
    folder: RunFolder
    recorder: Recorder
    agent: AgentClient
    worker_status: WorkerStatusReporter
    clock: Callable[[], float]  # monotonic seconds
    restarter: Restarter | None = None  # None: no node is restarted
    seen: set[type[Event]] = field(default_factory=set)  # kinds of events that the PS wrote down
    joined: set[str] = field(default_factory=set)  # the workers that have joined
    lost: dict[str, str] = field(default_factory=dict)  # how workers ended before training
    planned_exits: PlannedExits = field(default_factory=PlannedExits)
    ending: str = ""  # why training has ended, as the PS says
    _full: set[str] = field(default_factory=set)  # nodes with full logs
    own_files: str = ""  # names of the user's own files; empty for none
    _failed: TestbedError | None = None  # failure of a worker by an algorithm or user code
    saved: int | None = None  # the version of the PS's newest checkpoint
    _server_restarted: bool = False  # whether a PS was restarted and has not reported its version
    _host: HostSampler = field(default_factory=HostSampler)
    _counted: float = -COUNT_INTERVAL_SECONDS
    metered: bool = False  # whether queues and container usage are recorded
    _used: float = -USAGE_INTERVAL_SECONDS
    _compared: float = -LIMITS_INTERVAL_SECONDS

    def __post_init__(self) -> None:
        self._events = follow_ps_events(self.folder.ps_events)
        self._spool = SpoolReader(self.folder.spool, workers=len(self.plan.workers))

    def look(self) -> None:
        """Process what has happened since the last look.

        Raises:
            NodeError: the run cannot continue, for example because the PS or evaluator has ended.
            HostError: the run's folder was deleted, or a part of it.
        """
        gone = find_deleted(self.folder)
        if gone is not None:  # what the nodes write now is lost
            raise deletion_error(gone)
        ended = self.agent.exits()  # before reading files: these then hold all that the nodes wrote
        self._read_ps()
        self._take_exits(ended)
        self.worker_status.send()
        if Started in self.seen and self.clock() - self._counted >= COUNT_INTERVAL_SECONDS:
            self.count()
            if self.metered and self.clock() - self._used >= USAGE_INTERVAL_SECONDS:
                self._used = self.clock()
                self.recorder.usage(self.agent.usage())
            if self.clock() - self._compared >= LIMITS_INTERVAL_SECONDS:
                self.compare_limits()
        self.recorder.time_passed()

    def catch_up(self) -> None:
        """Process what the PS reported after the last look, without judging it.

        Workers that were notified of the end leave one by one; and an interrupted
        training continues until the PS is ended.

        Raises:
            SpoiledError: the records that the PS's node has left are malformed.
        """
        while self._read_ps():
            pass

    def count(self) -> None:
        """Record the kernel's counters and the host's load as traffic."""
        self._counted = self.clock()
        for change in self.agent.link_changes():
            self.recorder.event(change)
        frozen = set(self.agent.frozen())  # no data arrives from a frozen worker
        frozen -= self.planned_exits.frozen
        self.worker_status.set_frozen(
            {one.index for one in self.plan.workers if one.name in frozen}
        )
        traffic = self.agent.count()
        self._look_at_logs()
        sent_again = sum(traffic.retransmitted_in_bytes.values())
        counters = {**vars(traffic), "retransmitted_in_bytes": sent_again}
        self.recorder.traffic(counters, self._host.sample())

    def compare_limits(self) -> None:
        """Record which limits of containers were changed from outside the run."""
        self._compared = self.clock()
        for change in self.agent.limit_changes():
            self.recorder.event(change)

    def _look_at_logs(self) -> None:
        for name in (node.name for node in self.plan.nodes):
            if name not in self._full and is_full(self.folder.log(name)):
                self._full.add(name)
                self.recorder.event(LogFull(name, LOG_BYTES))

    def _read_ps(self) -> bool:
        """Process the PS's new records; return whether there may be more."""
        for entry in self._events.read():
            self._check(entry.event)
            self.recorder.from_ps(entry)
            self.seen.add(type(entry.event))
            match entry.event:
                case Joined(node):
                    self.joined.add(node)
                case Finished(reason):
                    self.ending = reason
                case Saved(version):
                    self.saved = version
                case Restored(version):
                    self._spool.rewind(rows=version)
        rows = self._spool.read()
        self.recorder.updates(rows)
        return bool(len(rows))

    def _check(self, event: Event) -> None:
        """Reject an event Restored if no parameter server was restarted: it truncates records."""
        if not isinstance(event, Restored):
            return
        if not self._server_restarted or event.version < (self.saved or 0):
            found = (
                f"a restart from a checkpoint at update {event.version:,}, but the controller has "
                "not restarted the server, or it had saved a later checkpoint"
            )
            raise SpoiledError(self.folder.ps_events, FROM_PS, found)
        self._server_restarted = False

    def _take_exits(self, exits: Sequence[Exit]) -> None:
        planned_names = {node.name for node in self.plan.nodes}
        for ended in exits:
            if ended.node not in planned_names:  # a probe
                continue
            node = self.plan.node(ended.node)
            exit_class = classify_exit(node, ended.status, seen=self.seen)
            if node.name in self.planned_exits.restarting and exit_class != "expected":
                exit_class = "noticed"
            if exit_class == "fatal" and self._restart_server(node, ended):
                continue
            if exit_class == "restarted":
                self._restart(node, ended)
                continue
            planned_end = exit_class == "noticed" and self.planned_exits.take(node.name)
            aside = exit_class == "noticed" and bool(node.command)
            planned = exit_class == "expected" or aside or planned_end
            what = "" if exit_class == "expected" else describe_exit(node, ended)
            fatal = exit_class == "fatal"
            self._record(ended, planned=planned, how=what, ends_run=fatal)
            if fatal:
                raise self._failure(node, ended)
            if planned_end and node.part == "client":
                self.worker_status.add(node.index, what)
            if planned or node.part == "aside":
                continue
            self.lost[node.name] = what
            self.worker_status.add(node.index, what)
            failure = self._failure(node, ended)
            if failure.exit_code in FAILURES:
                self._failed = failure
            if len(self.lost) == len(self.plan.workers):
                if self._failed is not None:
                    raise self._failed
                log = self._quote_log(ended)
                self.recorder.event(Phase(f"{what}: no worker is left{log}"))

    def _restart_server(self, node: NodeSpec, ended: Exit) -> bool:
        """Restart a parameter server that was killed; return whether it was."""
        killed = node.part == "server" and was_ended(ended.status)
        restarter = self.restarter
        if not killed or Finished in self.seen or self.saved is None:
            return False
        if restarter is None or not restarter.server:
            return False
        how = describe_exit(node, ended)
        restarter.check_server(how, saved=self.saved, log=self._quote_log(ended))
        self._record(ended, how=how, restarted=True)
        self.recorder.event(Launched(node.name, restarter.launch(node)))
        self.worker_status.resend()
        self._server_restarted = True
        return True

    def _restart(self, node: NodeSpec, ended: Exit) -> None:
        """Restart a node that was killed, unless training has ended."""
        how = describe_exit(node, ended)
        if Finished in self.seen or self.restarter is None:
            self._record(ended, planned=True, how=how)
            return
        planned = self.planned_exits.take(node.name)
        if not planned:
            self.restarter.check(node.name, how, log=self._quote_log(ended))
        self._record(ended, planned=planned, how=how, restarted=True)
        self.recorder.event(Launched(node.name, self.restarter.launch(node)))

    def _record(self, ended: Exit, **more: Any) -> None:
        outside = container_was_ended(ended)
        self.recorder.event(Exited(ended.node, ended.status, container_ended=outside, **more))

    def _failure(self, node: NodeSpec, ended: Exit) -> TestbedError:
        """Return the error to raise if a run cannot continue without the node that ended."""
        what = describe_exit(node, ended)
        if container_was_ended(ended):
            return NodeError(f"{what}.", hint=KEEP_CONTAINERS)
        kind: type[TestbedError] = NodeError
        if role_of(node).entry:  # exit statuses of a program have other meanings
            kind = FAILURES.get(ended.status, NodeError)
            if self.own_files and _is_unreported(ended):
                kind = UserCodeError
                end = early_exit(self.own_files, ended.status).message.rstrip(".")
                what = f"{node.name}: {end}{'' if ended.status else ' (or was ended by SIGTERM)'}"
        return kind(
            f"{what}{quote_log(self.folder.log(node.name))}",
            hint=f"Full log: testbed logs {self.folder.name} {node.name}",
        )

    def _quote_log(self, ended: Exit) -> str:
        """Return the log of a node that ended, unless that cannot say why it did."""
        return "." if container_was_ended(ended) else quote_log(self.folder.log(ended.node))


def container_was_ended(ended: Exit) -> bool:
    """Return whether a node was ended with its container, from outside the run."""
    return ended.container_ended and ended.status < 0 and not ended.out_of_memory


def _is_unreported(ended: Exit) -> bool:
    """Return whether a role ended in a way that only code in it can cause, without a report."""
    if ended.status < 0:
        return -ended.status in FAULTS
    return ended.status not in REPORTED and ended.status < FIRST_OF_SIGNALS


def describe_exit(node: NodeSpec, ended: Exit) -> str:
    """Return how a node ended, as a sentence without its full stop."""
    status = ended.status
    if ended.out_of_memory:
        limit = node.memory or "half of the host's memory, as its `memory` is not set"
        return f"{node.name} ran out of memory: the kernel killed it at its limit of {limit}"
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
