"""Carries the faults' timeline out on the nodes of a run, and what is asked for by hand."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import inf

from testbed.agent.client import AgentClient
from testbed.errors import HostError, NodeError
from testbed.events.entry import Entry
from testbed.events.kinds import Crashed, Evaluated, Exited, FaultApplied, Finished
from testbed.events.rows import Rows
from testbed.events.sink import Sink
from testbed.faults.link import Change
from testbed.faults.timeline import BY_HAND, Timeline
from testbed.run.by_hand import Asked, answer, asked
from testbed.run.deploy import ENDING_SECONDS, LOOK_SECONDS, Deployment
from testbed.run.setup import Setup
from testbed.run.watch import Watch
from testbed.runtimes.base import RuntimeDriver
from testbed.scenario.links import changed
from testbed.telemetry.files import replacing
from testbed.telemetry.folder import RunFolder
from testbed.telemetry.record import Recorder
from testbed.topology import NodeSpec

HELD = {"freeze": "stands still", "partition": "is cut off", "slow": "is slowed down"}
"""What is said of a worker that is struck by hand, by the kind of fault."""


@dataclass
class FaultyNodes:
    """An actuator (testbed.faults.base.Actuator) whose workers are nodes of a run.

    Attributes:
        names: of the nodes, by the numbers that faults have for them.
    """

    setup: Setup
    driver: RuntimeDriver
    agent: AgentClient
    watch: Watch
    deployment: Deployment
    names: Sequence[str]
    pause: Callable[[float], None]  # lets seconds pass

    def freeze(self, worker: int, *, for_good: bool) -> None:
        """See Actuator."""
        node = self.node(worker)
        if not for_good:
            self.watch.by_plan.standing.add(node.name)
        with _as_node_errors():
            self.driver.freeze(self.setup.folder, node.name)

    def crash(self, worker: int) -> None:
        """Stop a worker for good, of which the parameter server knows that it has crashed."""
        self.freeze(worker, for_good=False)

    def thaw(self, worker: int) -> None:
        """See Actuator."""
        node = self.node(worker)
        with _as_node_errors():
            self.driver.thaw(self.setup.folder, node.name)
        self.watch.by_plan.standing.discard(node.name)

    def kill(self, worker: int, *, for_good: bool) -> None:
        """See Actuator."""
        if not for_good:
            self.watch.by_plan.away.add(self.names[worker])
        self._end(worker, signal.SIGKILL)

    def leave(self, worker: int) -> None:
        """See Actuator."""
        self._end(worker, signal.SIGTERM)

    def join(self, worker: int) -> None:
        """See Actuator."""
        node = self.node(worker)
        self._await_end(node.name)
        if node.part == "client":
            self.watch.removals.tell()
            if not self.watch.removals.is_told(worker):
                raise NodeError("the parameter server could not be told that it had ended.")
        self.watch.by_plan.away.discard(node.name)
        with _as_node_errors():
            self.deployment.start(node)

    def _await_end(self, node: str) -> None:
        """Wait until the end of its process, which a fault has ended, was noticed and told."""
        deadline = self.watch.clock() + ENDING_SECONDS
        while node in self.watch.by_plan.ending:
            if self.watch.clock() > deadline:
                raise NodeError(f"it has not ended after {ENDING_SECONDS:g} s.")
            self.pause(LOOK_SECONDS)
            self.watch.look()

    def partition(self, worker: int) -> None:
        """See Actuator."""
        self.agent.partition(self.node(worker).name)

    def heal(self, worker: int) -> None:
        """See Actuator."""
        self.agent.heal(self.node(worker).name)

    def slow(self, worker: int, factor: float) -> None:
        """See Actuator. A worker reads it before every step."""
        file = self.setup.folder.slow / self.node(worker).name
        if factor == 1.0:
            file.unlink(missing_ok=True)
        else:
            with replacing(file) as fresh:
                fresh.write_text(repr(factor), encoding="utf-8")
                fresh.chmod(0o644)  # the node has a uid of its own

    def change_link(self, worker: int, up: Change, down: Change) -> None:
        """See Actuator."""
        node, time_scale = self.node(worker), self.setup.plan.time_scale
        assert node.link is not None, "whatever a fault strikes has one"
        self.agent.reshape(
            [node.name],
            up=changed(node.link.up, up, time_scale),
            down=changed(node.link.down, down, time_scale),
        )

    def reset_link(self, worker: int) -> None:
        """See Actuator."""
        if failure := self.agent.reset_links([self.node(worker).name]).failure:
            raise NodeError(f"{failure}.")

    def node(self, worker: int) -> NodeSpec:
        """The node of that number."""
        return self.setup.plan.node(self.names[worker])

    def _end(self, worker: int, number: signal.Signals) -> None:
        """Send a signal to a process that stands still, and let it go on to its end.

        With its sockets go their counters, so they are read while nothing more comes.
        """
        name = self.node(worker).name
        self.freeze(worker, for_good=False)
        self.watch.count()
        self.watch.by_plan.ending.add(name)
        self.agent.signal(name, number)
        self.thaw(worker)


@contextmanager
def _as_node_errors() -> Iterator[None]:
    """What the host refuses to do to a node is the run's failure, whoever asked for it."""
    try:
        yield
    except HostError as error:
        raise NodeError(error.message, hint=error.hint) from error


@dataclass
class Faults(Sink):
    """Follows what is written down, and does what is due; the recorder's clock says when."""

    timeline: Timeline
    nodes: FaultyNodes
    recorder: Recorder
    folder: RunFolder
    _crashed: list[tuple[int, float]] = field(default_factory=list)  # and are not frozen yet
    _ended: float = inf  # when the training did, emulated
    # when what was done by hand is undone, by what it was and the worker
    _undo_at: dict[tuple[str, int], float] = field(default_factory=dict)

    @property
    def now(self) -> float:
        """Emulated seconds since the training started."""
        elapsed = self.recorder.elapsed_seconds
        return 0.0 if elapsed is None else elapsed * self.recorder.time_scale

    def event(self, entry: Entry) -> None:
        """See Sink."""
        match entry.event:
            case Crashed(node, _, time_seconds):
                self._crashed.append((self._number(node), time_seconds))
            case Finished():
                self._ended = (entry.elapsed_seconds or 0.0) * self.recorder.time_scale
            case Evaluated(top1=float(top1), final=False):
                self.timeline.evaluated(top1, now=self.now)
            case Exited(node) if node in self.timeline.names:
                self._node_ended(self._number(node))

    def _node_ended(self, number: int) -> None:
        """A node's process has ended, planned or not."""
        population = self.timeline.population
        if self.nodes.node(number).part != "client":  # the next is started without anybody's join
            population.ended(number)
            return
        population.gone(number)
        self.nodes.slow(number, 1.0)  # of its next life nothing is said
        for kind in HELD:
            self._undo_at.pop((kind, number), None)

    def updates(self, rows: Rows, *, now: float) -> None:
        """See Sink."""
        for row in rows if self.timeline.waits else ():
            self.timeline.reached(int(row["version_applied"]) + 1, now=float(row["time_seconds"]))

    def pause(self, longest: float) -> float:
        """Real seconds until something is due, and not more than these."""
        if self._ended < inf:
            return longest
        soonest = min(self.timeline.next_time, *self._undo_at.values(), inf)
        return min(longest, max(0.0, (soonest - self.now) / self.recorder.time_scale))

    def look(self) -> None:
        """Do what is due by now.

        Raises:
            NodeError: it cannot be done.
        """
        for worker, planned in self._crashed:
            self.nodes.crash(worker)
            self.recorder.event(self.timeline.crash(worker, planned=planned, actual=self.now))
        self._crashed.clear()
        if self._ended < inf:
            for deed in self.timeline.due(self._ended):
                self.recorder.event(self.timeline.missed(deed, now=self.now))
            return
        for deed in self.timeline.due(self.now):
            self.recorder.event(self.timeline.carry_out(deed, self.nodes, clock=lambda: self.now))
        for kind, worker in [one for one, at in self._undo_at.items() if at <= self.now]:
            self._undo(kind, worker, planned=self._undo_at[kind, worker])
        for request in asked(self.folder):
            answer(self.folder, request, self._do(request))

    def _do(self, request: Asked) -> str:
        """Do what somebody asks for by hand; returns what speaks against it."""
        population, began = self.timeline.population, self.now
        workers = [self._number(node) for node in request.nodes]
        begins = request.verb != "thaw"
        kind = request.verb if begins else "freeze"
        for worker in workers:
            if worker in population.absent or worker in population.crashed:
                return f"w{worker} is not there, or has crashed"
            if (worker in population.held_by(kind)) == begins:
                return f"w{worker} {HELD[kind] if begins else 'goes on'} already"
        try:
            for worker in workers:
                if begins:
                    self._strike(kind, worker, began, request)
                else:
                    self._undo(kind, worker, planned=began)
        except NodeError as error:
            return error.message
        return ""

    def _strike(self, kind: str, worker: int, planned: float, request: Asked) -> None:
        match kind:
            case "partition":
                self.nodes.partition(worker)
            case "slow":
                self.nodes.slow(worker, request.factor)
            case _:
                self.nodes.freeze(worker, for_good=request.seconds is None)
        self.timeline.population.held_by(kind)[worker] = BY_HAND
        if request.seconds is not None:
            self._undo_at[kind, worker] = planned + request.seconds
        self._note(kind, worker, begins=True, planned=planned)

    def _undo(self, kind: str, worker: int, *, planned: float) -> None:
        self._undo_at.pop((kind, worker), None)
        self.timeline.population.held_by(kind).pop(worker, None)
        match kind:
            case "partition":
                self.nodes.heal(worker)
            case "slow":
                self.nodes.slow(worker, 1.0)
            case _:
                self.nodes.thaw(worker)
        self._note(kind, worker, begins=False, planned=planned)

    def _note(self, kind: str, worker: int, *, begins: bool, planned: float) -> None:
        self.recorder.event(FaultApplied(kind, begins, (f"w{worker}",), planned, self.now))

    def _number(self, node: str) -> int:
        return self.timeline.names.index(node)
