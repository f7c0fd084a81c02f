"""Follows a run: what the PS writes down, which nodes have ended, what the links carried."""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from testbed.agent.client import AgentClient
from testbed.agent.launch import Exit
from testbed.agent.link_changes import CHANGE
from testbed.agent.logs import LOG_BYTES, is_full
from testbed.errors import AlgorithmError, NodeError, TestbedError, UserCodeError
from testbed.events.entry import FROM_PS
from testbed.events.kinds import (
    Event,
    Exited,
    Finished,
    Joined,
    Launched,
    LinkChanged,
    LogFull,
    Phase,
    Restored,
    Saved,
    Started,
)
from testbed.host.apart import early_end
from testbed.nodes import role_of
from testbed.nodes.base import FIRST_OF_SIGNALS, meaning, was_ended
from testbed.run.removals import Removals
from testbed.run.revival import Restarts, Revival
from testbed.telemetry.breakage import deletion, find_gone
from testbed.telemetry.events import follow_ps_events
from testbed.telemetry.files import read_tail
from testbed.telemetry.folder import RunFolder
from testbed.telemetry.host import HostSampler
from testbed.telemetry.record import Recorder
from testbed.telemetry.spool import SpoolReader
from testbed.telemetry.untrusted import SpoiledError
from testbed.topology import NodeSpec, Plan

LOG_LINES = 12
FAILURES: dict[int, type[TestbedError]] = {
    kind.exit_code: kind for kind in (AlgorithmError, UserCodeError)
}
"""A run ends with the status of a node that an algorithm's mistake or a user's has ended."""

TOLD = frozenset((TestbedError.exit_code, *(k.exit_code for k in TestbedError.__subclasses__())))
"""With one of these a role ends that has said why."""

FAULTS = frozenset(
    (signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGSEGV, signal.SIGTRAP)
)
"""By one of these a process ends for what it has done itself."""

COUNT_INTERVAL_SECONDS = 1.0
USAGE_INTERVAL_SECONDS = 5.0


@dataclass
class ByPlan:
    """Nodes that faults have ended, or that stand still and will go on or have crashed."""

    ending: set[str] = field(default_factory=set)  # asked to end, or killed
    away: set[str] = field(default_factory=set)  # killed for a time: a fault brings them back
    standing: set[str] = field(default_factory=set)

    def ends(self, node: str) -> bool:
        """Whether a node that has ended was to; asked once for each end."""
        ended = node in self.ending
        self.ending.discard(node)
        return ended


@dataclass
class Watch:
    """Looks at a run now and then, and writes down what is new."""

    plan: Plan
    folder: RunFolder
    recorder: Recorder
    agent: AgentClient
    removals: Removals
    clock: Callable[[], float]  # monotonic seconds
    revival: Revival | None = None  # starts a parameter server again; None: it ends the run
    restarts: Restarts | None = None  # starts nodes again that are to be; None: nobody does
    seen: set[type[Event]] = field(default_factory=set)  # kinds of events that the PS wrote down
    joined: set[str] = field(default_factory=set)  # the workers that have joined
    lost: dict[str, str] = field(default_factory=dict)  # how workers ended, before the training
    by_plan: ByPlan = field(default_factory=ByPlan)
    ending: str = ""  # why the training has ended, in the PS's words
    _full: set[str] = field(default_factory=set)  # nodes whose logs hold no more
    own_files: str = ""  # names of the user's own files; empty for none
    _failed: TestbedError | None = None  # what an algorithm or the user's code did to a worker
    saved: int | None = None  # the version of the PS's newest checkpoint
    _revived: bool = False  # whether a PS was started again and has not said from where it goes on
    _host: HostSampler = field(default_factory=HostSampler)
    _counted: float = -COUNT_INTERVAL_SECONDS
    metered: bool = False  # whether somebody wants to know what queues hold and containers use
    _used: float = -USAGE_INTERVAL_SECONDS

    def __post_init__(self) -> None:
        self._events = follow_ps_events(self.folder.ps_events)
        self._spool = SpoolReader(self.folder.spool, workers=len(self.plan.workers))

    def look(self) -> None:
        """Take in what has happened since the last look.

        Raises:
            NodeError: the run cannot go on: the PS or the evaluator has ended, say.
            HostError: the run's folder is gone, or a part of it.
        """
        gone = find_gone(self.folder)
        if gone is not None:  # what the nodes write then is nowhere to be seen
            raise deletion(gone)
        ended = self.agent.exits()  # asked first: what they wrote before is in the files by now
        self._read_ps()
        self._take_exits(ended)
        self.removals.tell()
        if Started in self.seen and self.clock() - self._counted >= COUNT_INTERVAL_SECONDS:
            self.count()
            if self.metered and self.clock() - self._used >= USAGE_INTERVAL_SECONDS:
                self._used = self.clock()
                self.recorder.usage(self.agent.usage())
        self.recorder.time_passed()

    def catch_up(self) -> None:
        """Take in what the PS still said after the last look, without judging it.

        Workers that have been told of the end leave one by one, as their turn comes; and a training
        that is broken off goes on until the PS is ended.

        Raises:
            SpoiledError: what the PS's node has left is no record of its.
        """
        while self._read_ps():
            pass

    def count(self) -> None:
        """Read the kernel's counters and the host's load into the traffic record."""
        self._counted = self.clock()
        for change in self.agent.link_changes():
            self.recorder.event(LinkChanged(**CHANGE.dump_python(change, mode="json")))
        frozen = set(self.agent.frozen())  # nobody gets anything from a worker that stands still
        frozen -= self.by_plan.standing
        self.removals.frozen({one.index for one in self.plan.workers if one.name in frozen})
        traffic = self.agent.count()
        self._look_at_logs()
        sent_again = sum(traffic.retransmitted_in_bytes.values())
        counters = {**vars(traffic), "retransmitted_in_bytes": sent_again}
        self.recorder.traffic(counters, self._host.sample())

    def _look_at_logs(self) -> None:
        for name in (node.name for node in self.plan.nodes):
            if name not in self._full and is_full(self.folder.log(name)):
                self._full.add(name)
                self.recorder.event(LogFull(name, LOG_BYTES))

    def _read_ps(self) -> bool:
        """Take in what the PS wrote down; returns whether there may be more."""
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
        """Refuse to go back where no parameter server was started again: records are cut by that.

        Raises:
            SpoiledError: what the PS's node has left is no record of its.
        """
        if not isinstance(event, Restored):
            return
        if not self._revived or event.version < (self.saved or 0):
            found = f"that it went back to update {event.version:,}, which it was not asked to"
            raise SpoiledError(self.folder.ps_events, FROM_PS, found)
        self._revived = False

    def _take_exits(self, exits: Sequence[Exit]) -> None:
        planned_names = {node.name for node in self.plan.nodes}
        for ended in exits:
            if ended.node not in planned_names:  # a probe
                continue
            node = self.plan.node(ended.node)
            means = meaning(node, ended.status, seen=self.seen)
            if node.name in self.by_plan.away and means != "expected":
                means = "noticed"
            if means == "fatal" and self._revive(node, ended):
                continue
            if means == "restarted":
                self._restart(node, ended)
                continue
            ended_by_plan = means == "noticed" and self.by_plan.ends(node.name)
            aside = means == "noticed" and bool(node.command)
            planned = means == "expected" or aside or ended_by_plan
            what = "" if means == "expected" else describe_exit(node, ended)
            fatal = means == "fatal"
            self.recorder.event(
                Exited(node.name, ended.status, planned=planned, how=what, ends_run=fatal)
            )
            if fatal:
                raise self._failure(node, ended)
            if ended_by_plan and node.part == "client":
                self.removals.add(node.index, what)
            if planned or node.part == "aside":
                continue
            self.lost[node.name] = what
            self.removals.add(node.index, what)
            failure = self._failure(node, ended)
            if failure.exit_code in FAILURES:
                self._failed = failure
            if len(self.lost) == len(self.plan.workers):
                if self._failed is not None:
                    raise self._failed
                log = quote_log(self.folder.log(node.name))
                self.recorder.event(Phase(f"{what}: no worker is left{log}"))

    def _revive(self, node: NodeSpec, ended: Exit) -> bool:
        """Start a parameter server again that was killed; returns whether it was.

        Raises:
            NodeError: that was done in vain, or it cannot be started.
        """
        killed = node.part == "server" and was_ended(ended.status) and not ended.container_ended
        if self.revival is None or not killed or Finished in self.seen or self.saved is None:
            return False
        how = describe_exit(node, ended)
        self.revival.check(how, saved=self.saved, log=quote_log(self.folder.log(node.name)))
        self.recorder.event(Exited(node.name, ended.status, how=how, restarted=True))
        self.recorder.event(Launched(node.name, self.revival.launch(node)))
        self.removals.tell_again()
        self._revived = True
        return True

    def _restart(self, node: NodeSpec, ended: Exit) -> None:
        """Start a node again that was killed, unless the training is over.

        Raises:
            NodeError: it never lives for long, or cannot be started.
        """
        how = describe_exit(node, ended)
        if Finished in self.seen or self.restarts is None:
            self.recorder.event(Exited(node.name, ended.status, planned=True, how=how))
            return
        planned = self.by_plan.ends(node.name)
        if not planned:
            self.restarts.check(node.name, how, log=quote_log(self.folder.log(node.name)))
        self.recorder.event(
            Exited(node.name, ended.status, planned=planned, how=how, restarted=True)
        )
        self.recorder.event(Launched(node.name, self.restarts.launch(node)))

    def _failure(self, node: NodeSpec, ended: Exit) -> TestbedError:
        """What a node's end means to a run that cannot go on without it."""
        what = describe_exit(node, ended)
        kind: type[TestbedError] = NodeError
        if role_of(node).entry:  # a program's statuses have other meanings
            kind = FAILURES.get(ended.status, NodeError)
            if self.own_files and _untold(ended):
                kind = UserCodeError
                end = early_end(self.own_files, ended.status).message.rstrip(".")
                what = f"{node.name}: {end}{'' if ended.status else ' (or SIGTERM has ended it)'}"
        return kind(
            f"{what}{quote_log(self.folder.log(node.name))}",
            hint=f"The whole log: testbed logs {self.folder.name} {node.name}",
        )


def _untold(ended: Exit) -> bool:
    """Whether a role has ended as only code in it can have made it end, and has not said why."""
    if ended.status < 0:
        return -ended.status in FAULTS
    return ended.status not in TOLD and ended.status < FIRST_OF_SIGNALS


def describe_exit(node: NodeSpec, ended: Exit) -> str:
    """How a node ended, as a sentence without its full stop."""
    status = ended.status
    if ended.out_of_memory:
        limit = node.memory or "half of the host's memory, as it has no `memory` of its own"
        return f"{node.name} ran out of memory: the kernel killed it at its limit of {limit}"
    if status >= 0:
        return f"{node.name} exited with status {status}"
    if ended.container_ended:
        return f"{node.name}: its container was stopped or removed"
    names = {number.value: number.name for number in signal.Signals}
    return f"{node.name} was ended by {names.get(-status, f'signal {-status}')}"


def quote_log(path: Path) -> str:
    """The last lines of a node's log, to stand behind what happened to it."""
    try:
        lines = read_tail(path, lines=LOG_LINES)
    except OSError:
        lines = []
    quoted = "".join(f"\n    {line}" for line in lines)
    return f"; it printed:{quoted}" if lines else "; it printed nothing."
