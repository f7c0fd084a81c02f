"""Applies the faults' timeline, and manual faults, to the nodes of a run."""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf

from testbed.errors import HostError, HostLostError, NodeError
from testbed.faults import (
    ChangedLink,
    Freeze,
    Join,
    Kill,
    Leave,
    NetworkPartition,
    Slow,
    SlowNode,
)
from testbed.faults.base import PassingFault, TimedFault
from testbed.faults.timeline import BY_HAND, Timeline
from testbed.models.metrics import values_of
from testbed.run.by_hand import Asked, answer, asked
from testbed.run.deploy import LOOK_SECONDS, Deployment
from testbed.run.setup import Setup
from testbed.run.watch import Watch
from testbed.runtimes.agent.client import AgentClient
from testbed.scenario.links import changed
from testbed.telemetry.entry import Entry
from testbed.telemetry.event_kinds import Exited, FaultApplied, WorkloadEnded
from testbed.telemetry.folder import RunFolder
from testbed.telemetry.ps_events import Crashed, Evaluated, Finished
from testbed.telemetry.record import Recorder
from testbed.telemetry.rows import Rows
from testbed.telemetry.sink import Sink
from testbed.values.topology import NodeSpec

HELD = {"freeze": "is frozen", "partition": "is partitioned", "slow": "is slowed down"}
"""Reported state of a worker under a manual fault, by the kind of fault."""

ENDING_SECONDS = 5.0


@dataclass
class FaultyNodes:
    """An actuator (testbed.faults.base.Actuator) whose workers are nodes of a run."""

    setup: Setup
    agent: AgentClient
    watch: Watch
    deployment: Deployment
    names: Sequence[str]  # of the nodes, indexed by fault target numbers
    pause: Callable[[float], None]  # sleeps for seconds
    _withdrawn: set[str] = field(default_factory=set)  # absent nodes of a workload that ran

    def begin(self, fault: TimedFault, target: int) -> None:
        """Begin a fault of a node's process, link or pace."""
        node = self.node(target)
        match fault:
            case Freeze(ends=ends):
                self.freeze(node.name, for_good=not ends)
            case Kill(ends=ends):
                if ends:
                    self.watch.planned_exits.restarting.add(node.name)
                self._end(node.name, signal.SIGKILL)
            case Leave() if node.when_absent is not None:
                self._withdraw(node)
            case Join() if node.when_absent is not None:
                self._bring_back(node)
            case Leave():
                self._end(node.name, signal.SIGTERM)
            case Join():
                self._start(node)
            case NetworkPartition():
                self.agent.partition(node.name)
            case Slow(factor=factor) | SlowNode(factor=factor):
                self._set_pace(node, factor)
            case ChangedLink(up=up, down=down):
                time_scale = self.setup.plan.time_scale
                assert node.link is not None, "every target of a fault has one"
                self.agent.reshape(
                    [node.name],
                    up=changed(node.link.up, up, time_scale),
                    down=changed(node.link.down, down, time_scale),
                )

    def end(self, fault: PassingFault, target: int) -> None:
        """Undo a fault."""
        node = self.node(target)
        match fault:
            case Freeze():
                self._thaw(node.name)
            case Kill():
                self._start(node)
            case NetworkPartition():
                self.agent.heal(node.name)
            case Slow() | SlowNode():
                self._set_pace(node, 1.0)
            case ChangedLink():
                if failure := self.agent.reset_links([node.name]).failure:
                    raise NodeError(f"{failure}.")

    def freeze(self, name: str, *, for_good: bool) -> None:
        """Freeze a node; if ``for_good``, no fault thaws it, and the run does not wait for it."""
        if not for_good:
            self.watch.planned_exits.frozen.add(name)
        worker = self.setup.plan.node(name).part == "client"
        self.agent.freeze(name, self.setup.folder.slow / f"{name}.stood" if worker else None)

    def _thaw(self, name: str) -> None:
        self.agent.thaw(name)
        self.watch.planned_exits.frozen.discard(name)

    def _withdraw(self, node: NodeSpec) -> None:
        """Make a workload's node absent, if it runs: else there is nothing to stop."""
        if node.name not in self.agent.running():
            return
        self._withdrawn.add(node.name)
        try:
            match node.when_absent:
                case "freeze":
                    self.freeze(node.name, for_good=False)
                case "partition":
                    self.agent.partition(node.name)
                case _:
                    self.watch.planned_exits.restarting.add(node.name)
                    self._end(node.name, signal.SIGKILL)
        except NodeError:
            if node.name in self.agent.running():
                raise
            self._withdrawn.discard(node.name)  # it has ended by itself meanwhile
            self.watch.planned_exits.restarting.discard(node.name)

    def _bring_back(self, node: NodeSpec) -> None:
        """Undo the absence of a workload's node; one that has not started is not concerned."""
        if node.name not in self._withdrawn:
            return
        self._withdrawn.discard(node.name)
        try:
            match node.when_absent:
                case "freeze":
                    self._thaw(node.name)
                case "partition":
                    self.agent.heal(node.name)
                case _:
                    self._start(node)
        except NodeError:
            if node.when_absent == "kill" or node.name in self.agent.running():
                raise  # otherwise it has ended by itself

    def _start(self, node: NodeSpec) -> None:
        """Start a node again once its end was reported to the parameter server."""
        self._await_end(node.name)
        self.watch.planned_exits.restarting.discard(node.name)
        self.agent.require_host(node.host)
        self.watch.prepare_restart(node)
        try:
            self.deployment.start(node)
        except HostError as error:  # a failure of the run
            raise NodeError(error.message, hint=error.hint) from error

    def _await_end(self, node: str) -> None:
        """Wait until the end of its process, caused by a fault, was noticed and reported."""
        deadline = self.watch.clock() + ENDING_SECONDS
        while node in self.watch.planned_exits.ending:
            if self.watch.clock() > deadline:
                raise NodeError(f"it did not end within {ENDING_SECONDS:g} s.")
            self.pause(LOOK_SECONDS)
            self.watch.look()

    def _set_pace(self, node: NodeSpec, factor: float) -> None:
        """Slow a worker's steps down; a workload's node has its CPU limit divided by the factor."""
        if node.part == "peer":
            assert node.cpu is not None, "checked before"
            self.agent.set_quota(node.name, node.cpu / factor)
            return
        self.agent.set_pace(node.name, self.setup.folder.slow / node.name, factor)

    def restore_pace(self, target: int) -> None:
        """Undo a slowdown of a worker that has ended: it is not slow after a restart."""
        with suppress(NodeError):  # so has its host
            self._set_pace(self.node(target), 1.0)

    def node(self, worker: int) -> NodeSpec:
        """Return the node with that number."""
        return self.setup.plan.node(self.names[worker])

    def _end(self, name: str, number: signal.Signals) -> None:
        """Send a signal to a frozen process, and thaw it so that it ends.

        Its sockets' counters vanish with the sockets, so they are read while no traffic arrives.
        """
        self.freeze(name, for_good=False)
        self.watch.count()
        self.watch.planned_exits.ending.add(name)
        self.agent.signal(name, number, thaw=True)
        self.watch.planned_exits.frozen.discard(name)


@dataclass
class Faults(Sink):
    """Follows the records, and applies scheduled faults by the recorder's clock."""

    timeline: Timeline
    nodes: FaultyNodes
    recorder: Recorder
    folder: RunFolder
    _crashed: list[tuple[int, float]] = field(default_factory=list)  # and not frozen yet
    _ended: float = inf  # when the training ended, emulated
    # when a manual fault is undone, by its kind and the worker
    _undo_at: dict[tuple[str, int], tuple[float, PassingFault]] = field(default_factory=dict)

    @property
    def now(self) -> float:
        """Emulated seconds since the training started."""
        elapsed = self.recorder.elapsed_seconds
        return 0.0 if elapsed is None else elapsed * self.recorder.time_scale

    def event(self, entry: Entry) -> None:
        """Schedule what an event triggers."""
        match entry.event:
            case Crashed(node, _, time_seconds):
                self._crashed.append((self._number(node), time_seconds))
            case Finished() | WorkloadEnded():
                self._ended = (entry.elapsed_seconds or 0.0) * self.recorder.time_scale
            case Evaluated(loss=loss, metrics=found, final=False):
                self.timeline.evaluated(values_of(found, loss), now=self.now)
            case Exited(node) if node in self.timeline.names:
                self._node_ended(self._number(node))

    def _node_ended(self, number: int) -> None:
        """Remove the faults of a node whose process has exited."""
        population = self.timeline.population
        for kind in HELD:
            self._undo_at.pop((kind, number), None)
        node = self.nodes.node(number)
        if node.part != "client":  # restarted without a join
            population.end_faults(number)
            if node.name not in self.nodes.watch.planned_exits.restarting:
                self.timeline.retire(number)
            return
        population.mark_absent(number)
        self.nodes.restore_pace(number)

    def updates(self, rows: Rows, *, now: float) -> None:
        """Schedule the faults that begin at the version of one of these updates."""
        for row in rows if self.timeline.waits else ():
            self.timeline.reached(int(row["version_applied"]) + 1, now=float(row["time_seconds"]))

    def pause(self, longest: float) -> float:
        """Return the real seconds until the next fault begins or ends, at most ``longest``."""
        if self._ended < inf:
            return longest
        soonest = min(self.timeline.next_time, *(at for at, _ in self._undo_at.values()), inf)
        return min(longest, max(0.0, (soonest - self.now) / self.recorder.time_scale))

    def look(self) -> None:
        """Begin and end the faults that are due.

        Raises:
            NodeError: a fault could not be applied or undone.
        """
        for worker, planned in self._crashed:
            with suppress(HostLostError):  # its end is reported next
                self.nodes.freeze(f"w{worker}", for_good=False)  # the parameter server knows of it
                self.recorder.event(self.timeline.crash(worker, planned=planned, actual=self.now))
        self._crashed.clear()
        if self._ended < inf:
            for action in self.timeline.due(self._ended):
                self.recorder.event(self.timeline.missed(action, now=self.now))
            return
        for action in self.timeline.due(self.now):
            self.recorder.event(self.timeline.carry_out(action, self.nodes, clock=lambda: self.now))
        for (_, worker), (at, fault) in list(self._undo_at.items()):
            if at <= self.now:
                with suppress(HostLostError):
                    self._undo(fault, worker, planned=at)
        for request in asked(self.folder):
            answer(self.folder, request, self._do(request))

    def _do(self, request: Asked) -> str:
        """Execute a manual request; return the objection to it, or an empty string."""
        population, began = self.timeline.population, self.now
        workers = [self._number(node) for node in request.nodes]
        begins, fault = request.verb != "thaw", request.fault(began)
        for worker in workers:
            if self.nodes.node(worker).when_absent == fault.kind:
                return f"{self.timeline.names[worker]} has an availability that does the same"
            if worker in population.absent or worker in population.crashed:
                return f"{self.timeline.names[worker]} is not present, or has crashed"
            if (worker in population.active(fault.kind)) == begins:
                state = HELD[fault.kind] if begins else "is not under this fault"
                return f"{self.timeline.names[worker]} {state} already"
        try:
            for worker in workers:
                if begins:
                    self._strike(fault, worker, began)
                else:
                    self._undo(fault, worker, planned=began)
        except NodeError as error:
            return error.message
        return ""

    def _strike(self, fault: PassingFault, worker: int, planned: float) -> None:
        self.nodes.begin(fault, worker)
        self.timeline.population.active(fault.kind)[worker] = BY_HAND
        if fault.duration is not None:
            self._undo_at[fault.kind, worker] = planned + fault.duration, fault
        self._note(fault.kind, worker, begins=True, planned=planned)

    def _undo(self, fault: PassingFault, worker: int, *, planned: float) -> None:
        self._undo_at.pop((fault.kind, worker), None)
        self.timeline.population.active(fault.kind).pop(worker, None)
        self.nodes.end(fault, worker)
        self._note(fault.kind, worker, begins=False, planned=planned)

    def _note(self, kind: str, worker: int, *, begins: bool, planned: float) -> None:
        nodes = (self.timeline.names[worker],)
        self.recorder.event(FaultApplied(kind, begins, nodes, planned, self.now))

    def _number(self, node: str) -> int:
        return self.timeline.names.index(node)
