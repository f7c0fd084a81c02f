"""The course of a workload: programs start once what they wait for has happened."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar

from testbed.errors import NodeError
from testbed.faults.timeline import Timeline
from testbed.run.course import Connected, Course
from testbed.run.deploy import LOOK_SECONDS, Deployment
from testbed.run.faults import Faults
from testbed.run.metric_values import MetricValues
from testbed.run.output import Output
from testbed.run.scraping import Scraper
from testbed.run.setup import WorkloadSetup
from testbed.run.traces import Traces
from testbed.run.watch import quote_log
from testbed.run.workload_watch import ABSENT, FOREGROUND, HELD, WorkloadWatch
from testbed.runtimes.agent.settings import OnHangup
from testbed.scenario.traces import followings, own_copy
from testbed.scenario.workload import Condition, Workload
from testbed.scenario.workload_availability import node_availabilities
from testbed.scenario.workload_names import port_of, workload_timeline
from testbed.telemetry.event_kinds import Phase, State, WorkloadBegun
from testbed.values.topology import NodeSpec


@dataclass
class Starts:
    """Which programs have started, and what the others wait for."""

    workload: Workload
    deployment: Deployment
    watch: WorkloadWatch
    timeline: Timeline = field(default_factory=Timeline)  # says which nodes are absent
    _started: dict[str, float] = field(default_factory=dict)  # programs, and when
    _later: set[str] = field(default_factory=set)  # their nodes that have been absent until now
    _met: set[tuple[str, str]] = field(default_factory=set)  # a program, and what it waited for

    @property
    def complete(self) -> bool:
        """Whether all programs have started."""
        return len(self._started) == len(self.workload.workload)

    def step(self) -> None:
        """Start the programs that wait for nothing any more.

        Raises:
            NodeError: a node could not be started, or what a program waits for cannot happen, or
                has not happened in time; names both.
        """
        self._start_returned()
        if self.complete:
            return
        ready = [
            name
            for name, program in self.workload.workload.items()
            if name not in self._started
            # each is noted as soon as it happens
            and all([self._is_met(name, other, what) for other, what in program.after.items()])  # noqa: C419
        ]
        away = self._away()
        for name in ready:
            self._later |= away.intersection(self._names(name))
            self._request([node for node in self._names(name) if node not in away])
        if ready:
            self.deployment.settle()
            self._started |= dict.fromkeys(ready, self.deployment.clock())
            self.deployment.check_links()

    def release(self) -> None:
        """Wait no longer for nodes that never return.

        They are absent for good; or only nodes are left that a fault holds until one prints a line.
        """
        for name in self.timeline.named(self.timeline.departed):
            self.watch.depart(name, ABSENT)
        held = set(self.timeline.named(self.timeline.held))
        started = {node for program in self._started for node in self._names(program)}
        if started <= self.watch.over | held:
            for name in sorted(held):
                self.watch.depart(name, HELD)

    def _request(self, nodes: Sequence[str]) -> None:
        if nodes:
            self.watch.recorder.event(Phase(f"starting {', '.join(nodes)}"))
        for node in nodes:
            self.deployment.request(self.deployment.setup.plan.node(node))

    def _start_returned(self) -> None:
        """Start the nodes of started programs that are present for the first time."""
        if back := sorted(self._later - self._away() - self.watch.gone.keys()):
            self._later.difference_update(back)
            self._request(back)
            self.deployment.settle()

    def _away(self) -> set[str]:
        return set(self.timeline.named(self.timeline.away))

    def _names(self, program: str) -> tuple[str, ...]:
        return self.workload.workload[program].node_names(program)

    def _is_met(self, name: str, other: str, what: Condition) -> bool:
        """Return whether what a program waits for has happened; it need not last."""
        if (name, other) in self._met:
            return True
        if other not in self._started:
            return False
        missing = [
            node for node in self._concerned(other, what) if not self._has(node, other, what)
        ]
        if not missing:
            self._met.add((name, other))
            return True
        self._check_possible(f"workload.{name}.after.{other}", missing[0], what)
        if what.within is not None:
            waited = self.deployment.clock() - self._started[other]
            if waited > what.within:
                raise self._late(f"workload.{name}.after.{other}", missing[0], what)
        return False

    def _concerned(self, program: str, what: Condition) -> Sequence[str]:
        """Return the nodes for which a condition must hold: an absent one is awaited at its end.

        If all are absent, so is what they are to do.
        """
        names, away = self._names(program), self._away()
        if what.state == "ended":
            return names
        return [node for node in names if node not in away] or names

    def _has(self, node: str, program: str, what: Condition) -> bool:
        """Return whether a node, which has been started, did what another program waits for."""
        if what.state is not None:
            started = what.state == "started" and node not in self._later
            return started or node in self.watch.succeeded
        if what.prints is not None:
            return self.watch.output.has_printed(node, what.prints)
        assert what.listens is not None, "one of the three is set"
        port = port_of(self.workload.workload[program], what.listens)
        return node in self.watch.agent.running() and port in self.watch.agent.listening(node)

    def _check_possible(self, where: str, node: str, what: Condition) -> None:
        """Refuse to wait for a node that has ended."""
        if node not in self.watch.over or node in self.watch.planned_exits.restarting:
            return
        how = self.watch.gone.get(node)
        hint = f"{FOREGROUND} " if how is None else ""
        how = how or f"{node} exited with status 0"
        wanted = f"{where}: {how}, but {self._wanted(node, what)} was waited for"
        raise self._error(wanted, node, hint=hint)

    def _late(self, where: str, node: str, what: Condition) -> NodeError:
        found = ""
        if what.listens is not None and node in self.watch.agent.running():
            ports = ", ".join(map(str, self.watch.agent.listening(node)))
            found = f" (it listens at {ports})" if ports else " (it listens at no TCP port)"
        wanted = self._wanted(node, what)
        return self._error(f"{where}: {wanted} has not happened within {what.within}{found}", node)

    def _wanted(self, node: str, what: Condition) -> str:
        if what.state is not None:
            return f"the end of {node} with status 0"
        if what.prints is not None:
            return f"a line of {node} that matches {what.prints!r}"
        return f"that {node} listens on port {what.listens}"

    def _error(self, message: str, node: str, *, hint: str = "") -> NodeError:
        folder = self.watch.folder
        return NodeError(
            f"{message}{quote_log(folder.log(node))}",
            hint=f"{hint}Correct the condition, or give it a longer `within`. Full log: "
            f"testbed logs {folder.name} {node}",
        )


class WorkloadCourse(Course):
    """The course of one workload."""

    active: ClassVar[State] = "running"
    on_hangup: ClassVar[OnHangup] = "end"
    watch: WorkloadWatch

    def __init__(self, setup: WorkloadSetup, run: Connected) -> None:
        workload = self._workload = setup.workload
        self._run = run
        stop = workload.stop.time if workload.stop is not None else None
        locate = partial(own_copy, setup.folder.path)
        present = node_availabilities(workload, locate)
        follows = followings(workload, locate)
        self._traces = Traces(setup.plan, run.agent, run.recorder, follows, absent=())
        timeline = self.timeline = workload_timeline(workload, present)

        def printed(line: str) -> None:
            timeline.printed(line, now=run.recorder.elapsed_seconds or 0.0)

        values = MetricValues(workload, run.recorder, timeline)
        self.watch = WorkloadWatch(
            *(setup.plan, setup.folder, run.recorder, run.agent, run.clock),
            Output(workload, setup.folder, values, printed),
            Scraper(workload, run.agent, values, run.clock),
            stop_seconds=None if stop is None else float(stop),
        )
        self._starts: Starts | None = None

    def as_now(self, node: NodeSpec) -> NodeSpec:
        """Return a node with the link that its recordings have now."""
        return self._traces.as_now(node)

    def bring_up(self, deployment: Deployment) -> None:
        """Start the programs that wait for nothing; the clock starts with them."""
        deployment.create_containers()
        self.watch.begin()
        self._run.recorder.event(WorkloadBegun())
        self._starts = Starts(self._workload, deployment, self.watch, self.timeline)
        self._starts.release()
        self._starts.step()

    def follow(self, faults: Faults) -> None:
        """Watch the programs, start the others as soon as they may, apply faults and recordings."""
        assert self._starts is not None, "brought up before"
        self.watch.look()
        while not self.watch.finished:
            self._run.pause(self._traces.pause(faults.pause(LOOK_SECONDS)))
            self._traces.look()  # first: its timing is the finest
            self.watch.look()
            if not self.watch.finished:
                self._starts.step()
            faults.look()
            self._starts.release()
