"""Follows a run: what the PS writes down, which nodes have ended, what the links carried."""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from testbed.agent.client import AgentClient
from testbed.agent.launch import Exit
from testbed.agent.link_changes import CHANGE
from testbed.errors import NodeError
from testbed.orchestrator.removals import Removals
from testbed.orchestrator.tail import Event, EventTail
from testbed.telemetry.breakage import deletion, find_gone
from testbed.telemetry.folder import RunFolder
from testbed.telemetry.host import HostSampler
from testbed.telemetry.record import Recorder
from testbed.telemetry.spool import SpoolReader
from testbed.telemetry.status import Gauge, Observer
from testbed.topology import NodeSpec, Plan

LOG_LINES = 12
COUNT_INTERVAL_SECONDS = 1.0


@dataclass
class Watch:
    """Looks at a run now and then, and writes down what is new.

    Attributes:
        plan: the run's nodes.
        folder: the run's folder.
        recorder: where everything is written down.
        agent: asked for ended nodes and counters.
        removals: told of workers that have ended, for the parameter server.
        gauge: adds up what is shown.
        time_scale: emulated seconds per real second.
        observer: is shown it.
        clock: monotonic seconds.
        seen: the kinds of events that the PS has written down.
        joined: the workers that have joined.
        lost: the workers that have ended before the training, and how, in a sentence.
        ending: why the training has ended, in the PS's words.
    """

    plan: Plan
    folder: RunFolder
    recorder: Recorder
    agent: AgentClient
    removals: Removals
    gauge: Gauge
    time_scale: float
    observer: Observer
    clock: Callable[[], float]
    seen: set[str] = field(default_factory=set)
    joined: set[str] = field(default_factory=set)
    lost: dict[str, str] = field(default_factory=dict)
    ending: str = ""
    _host: HostSampler = field(default_factory=HostSampler)
    _counted: float = -COUNT_INTERVAL_SECONDS

    def __post_init__(self) -> None:
        self._events = EventTail(self.folder.ps_events)
        self._spool = SpoolReader(self.folder.spool)

    def look(self) -> None:
        """Take in what has happened since the last look.

        Raises:
            NodeError: the run cannot go on: the PS, the evaluator or every worker has ended.
            HostError: the run's folder is gone, or a part of it.
        """
        gone = find_gone(self.folder)
        if gone is not None:  # what the nodes write then is nowhere to be seen
            raise deletion(gone)
        ended = self.agent.exits()  # asked first: what they wrote before is in the files by now
        self._read_spool()
        self._take_exits(ended)
        self.removals.tell()
        if "started" in self.seen:
            if self.clock() - self._counted >= COUNT_INTERVAL_SECONDS:
                self.count()
            elapsed = self.recorder.elapsed_seconds or 0.0
            emulated = elapsed * self.time_scale
            self.observer.status(self.gauge.status(elapsed, emulated=emulated))

    def catch_up(self) -> None:
        """Write down what the PS still said after the last look, and show none of it.

        Workers that have been told of the end leave one by one, as their turn comes; and a training
        that is broken off goes on until the PS is ended.
        """
        for event in self._events.events():
            self.recorder.from_ps(event)
        if self.folder.spool.exists():
            self.recorder.updates(self._spool.read())

    def count(self) -> None:
        """Read the kernel's counters and the host's load into the traffic record."""
        self._counted = self.clock()
        self._record_link_changes()
        self.recorder.traffic(self.agent.count(), self._host.sample())

    def _record_link_changes(self) -> None:
        for change in self.agent.link_changes():
            self.recorder.event("link_changed", **CHANGE.dump_python(change, mode="json"))

    def _read_spool(self) -> None:
        for event in self._events.events():
            self.recorder.from_ps(event)
            self.seen.add(event["event"])
            self._take(event)
        if self.folder.spool.exists():
            rows = self._spool.read()
            self.recorder.updates(rows)
            if len(rows):
                self.gauge.add_updates(rows, self.recorder.elapsed_seconds or 0.0)

    def _take(self, event: Event) -> None:
        match event["event"]:
            case "joined":
                self.joined.add(event["node"])
            case "started":
                self.observer.phase("training")
            case "evaluated":
                self.gauge.add_evaluation(event)
            case "rejected":
                self.observer.notice(f"{event['node']}: rejected: {event['reason']}")
            case "finished":
                self.ending = event["reason"]

    def _take_exits(self, exits: Sequence[Exit]) -> None:
        planned_names = {node.name for node in self.plan.nodes}
        for ended in exits:
            if ended.node not in planned_names:  # a probe
                continue
            planned = "finished" in self.seen and ended.status == 0
            self.recorder.exited(ended.node, status=ended.status, planned=planned)
            if planned:
                continue
            node = self.plan.node(ended.node)
            what = describe_exit(node, ended)
            if node.role != "worker" or "started" not in self.seen:
                raise NodeError(
                    f"{what}{quote_log(self.folder.log(node.name))}",
                    hint=f"The whole log: testbed logs {self.folder.name} {node.name}",
                )
            self.lost[node.name] = what
            self.removals.add(node.index, what)
            self.observer.notice(f"{what}; the others go on")
        if len(self.lost) == len(self.plan.workers):
            *_, (name, what) = self.lost.items()
            raise NodeError(
                f"every worker has ended before the training did. The last: {what}"
                f"{quote_log(self.folder.log(name))}",
                hint=f"All logs: testbed logs {self.folder.name}",
            )


def describe_exit(node: NodeSpec, ended: Exit) -> str:
    """How a node ended, as a sentence without its full stop."""
    status = ended.status
    if ended.out_of_memory:
        limit = f"the kernel killed it at its limit of {node.memory}"
        return f"{node.name} ran out of memory: {limit}"
    if status >= 0:
        return f"{node.name} exited with status {status}"
    if ended.container_ended:
        return f"{node.name}: its container was stopped or removed"
    names = {number.value: number.name for number in signal.Signals}
    return f"{node.name} was ended by {names.get(-status, f'signal {-status}')}"


def quote_log(path: Path) -> str:
    """The last lines of a node's log, to stand behind what happened to it."""
    try:
        lines = path.read_text(errors="replace").splitlines()[-LOG_LINES:]
    except OSError:
        lines = []
    quoted = "".join(f"\n    {line}" for line in lines)
    return f"; it printed:{quoted}" if lines else "; it printed nothing."
