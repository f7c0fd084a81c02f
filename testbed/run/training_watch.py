"""Watches a training: the parameter server's records, and the ends of nodes it depends on."""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from testbed.errors import AlgorithmError, NodeError, TestbedError, UserCodeError
from testbed.host.isolation import early_exit
from testbed.plan.nodes import role_of
from testbed.plan.nodes.base import FIRST_OF_SIGNALS, classify_exit, was_ended
from testbed.run.watch import Restarter, Watch, container_was_ended, describe_exit
from testbed.run.worker_status import WorkerStatusReporter
from testbed.runtimes.agent.launch import Exit
from testbed.telemetry.entry import FROM_PS
from testbed.telemetry.event import Event
from testbed.telemetry.event_kinds import Launched, Phase
from testbed.telemetry.events import follow_ps_events
from testbed.telemetry.ps_events import Finished, Joined, Restored, Saved, Started
from testbed.telemetry.spool import SpoolReader
from testbed.telemetry.untrusted import SpoiledError
from testbed.values.topology import NodeSpec

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


@dataclass
class TrainingWatch(Watch):
    """Polls a training, and records what is new."""

    worker_status: WorkerStatusReporter
    restarter: Restarter | None = None  # None: no node is restarted
    seen: set[type[Event]] = field(default_factory=set)  # kinds of events that the PS wrote down
    joined: set[str] = field(default_factory=set)  # the workers that have joined
    lost: dict[str, str] = field(default_factory=dict)  # how workers ended before training
    own_files: str = ""  # names of the user's own files; empty for none
    _failed: TestbedError | None = None  # failure of a worker by an algorithm or user code
    saved: int | None = None  # the version of the PS's newest checkpoint
    _server_restarted: bool = False  # whether a PS was restarted and has not reported its version

    def __post_init__(self) -> None:
        self._events = follow_ps_events(self.folder.ps_events)
        self._spool = SpoolReader(self.folder.spool, workers=len(self.plan.workers))

    @property
    def started(self) -> bool:
        """Whether all workers have joined."""
        return Started in self.seen

    @property
    def finished(self) -> bool:
        """Whether the training has ended."""
        return Finished in self.seen

    def look(self) -> None:
        """Process what has happened since the last look.

        Raises:
            NodeError: the run cannot continue, for example because the PS or evaluator has ended.
            HostError: the run's folder was deleted, or a part of it.
        """
        ended = self.take_ended()  # before reading files: these then hold all that the nodes wrote
        self.agent.copy_records(whole=bool(ended))
        self._read_ps()
        self._take_exits(ended)
        self.worker_status.send()
        self.measure()

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
        self.begin_count()
        frozen, thawed = set(self.agent.frozen()), self.planned_exits.frozen
        self.worker_status.set_frozen(  # no data arrives from a frozen worker
            {one.index: one.name in thawed for one in self.plan.workers if one.name in frozen}
        )
        traffic = self.agent.count()
        self.look_at_logs()
        sent_again = sum(traffic.retransmitted_in_bytes.values())
        # what there is by node concerns workloads
        counters = {name: n for name, n in vars(traffic).items() if not isinstance(n, Mapping)}
        counters["retransmitted_in_bytes"] = sent_again
        self.recorder.traffic(counters, self.host.sample())

    def prepare_restart(self, node: NodeSpec) -> None:
        """Report the end of a worker to the parameter server before the worker joins again.

        Raises:
            NodeError: the parameter server could not be notified.
        """
        if node.part == "client":
            self.worker_status.send(wait=True)
            if not self.worker_status.is_sent(node.index):
                raise NodeError("the parameter server could not be notified that it had ended.")

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
        for ended in exits:
            node = self.plan.node(ended.node)
            exit_class = classify_exit(node, ended.status, seen=self.seen)
            if node.name in self.planned_exits.restarting and exit_class != "expected":
                exit_class = "noticed"
            if ended.lost and exit_class == "restarted":
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
            self.record_exit(ended, planned=planned, how=what, ends_run=fatal)
            if fatal:
                raise self.failure(node, ended)
            if planned_end and node.part == "client":
                self.worker_status.add(node.index, what)
            if planned or node.part == "aside":
                continue
            self.lost[node.name] = what
            self.worker_status.add(node.index, what)
            failure = self.failure(node, ended)
            if failure.exit_code in FAILURES:
                self._failed = failure
            if len(self.lost) == len(self.plan.workers):
                if self._failed is not None:
                    raise self._failed
                log = self.quote_log_of(ended)
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
        restarter.check_server(how, saved=self.saved, log=self.quote_log_of(ended))
        self.record_exit(ended, how=how, restarted=True)
        self.recorder.event(Launched(node.name, restarter.launch(node)))
        self.worker_status.resend()
        self._server_restarted = True
        return True

    def _restart(self, node: NodeSpec, ended: Exit) -> None:
        """Restart a node that was killed, unless training has ended."""
        how = describe_exit(node, ended)
        if Finished in self.seen or self.restarter is None:
            self.record_exit(ended, planned=True, how=how)
            return
        planned = self.planned_exits.take(node.name)
        if not planned:
            self.restarter.check(node.name, how, log=self.quote_log_of(ended))
        self.record_exit(ended, planned=planned, how=how, restarted=True)
        self.recorder.event(Launched(node.name, self.restarter.launch(node)))

    def failure(self, node: NodeSpec, ended: Exit) -> TestbedError:
        """Return the error to raise if a run cannot continue without the node that ended."""
        if container_was_ended(ended) or not role_of(node).entry:
            return super().failure(node, ended)
        kind = FAILURES.get(ended.status, NodeError)  # a program's statuses have other meanings
        what = describe_exit(node, ended)
        if self.own_files and _is_unreported(ended):
            kind = UserCodeError
            end = early_exit(self.own_files, ended.status).message.rstrip(".")
            what = f"{node.name}: {end}{'' if ended.status else ' (or was ended by SIGTERM)'}"
        return self.failed_with(kind, what, node.name)


def _is_unreported(ended: Exit) -> bool:
    """Return whether a role ended in a way that only code in it can cause, without a report."""
    if ended.status < 0:
        return -ended.status in FAULTS
    return ended.status not in REPORTED and ended.status < FIRST_OF_SIGNALS
