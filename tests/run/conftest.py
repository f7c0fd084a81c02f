"""A small run that is set up but not started, and a stand-in for its agent."""

from __future__ import annotations

import io
import json
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from testbed.errors import TestbedError
from testbed.faults.timeline import Timeline
from testbed.host.admission import ADMISSION
from testbed.host.users import Users
from testbed.network.counters import InterfaceCounters, Traffic
from testbed.plan.make import plan
from testbed.plan.workload import plan_workload
from testbed.reports.console import Console
from testbed.reports.live import LiveDisplay, Progress
from testbed.reports.live_workload import WorkloadDisplay
from testbed.rpc.tokens import token_of
from testbed.run.deploy import Deployment
from testbed.run.metric_values import MetricValues
from testbed.run.output import Output
from testbed.run.scraping import Scraper
from testbed.run.setup import TrainingSetup, WorkloadSetup
from testbed.run.training_watch import TrainingWatch
from testbed.run.worker_status import WorkerStatusReporter
from testbed.run.workload import Starts
from testbed.run.workload_watch import WorkloadWatch
from testbed.runtimes.agent.launch import Exit, LaunchSpec
from testbed.runtimes.base import ContainerSpec
from testbed.scenario import Override, dump, load_text
from testbed.scenario.dump import dump_data
from testbed.scenario.load_workload import load_workload
from testbed.scenario.settings import Stop
from testbed.scenario.workload_availability import node_availabilities
from testbed.scenario.workload_names import workload_timeline
from testbed.telemetry.event_kinds import WorkloadBegun
from testbed.telemetry.folder import RunFolder
from testbed.telemetry.record import Recorder
from testbed.values.topology import Plan
from testbed.values.usage import ContainerUse, Queue, Usage

TEXT = """\
name: small
algorithm: asgd
model: digits-cnn
dataset: digits
workers:
  count: 3
  classes:
    fast: {share: 0.67, link: {up: {rate: 10mbit}}}
    slow: {share: 0.33, memory: 64MiB}
stop: {updates: 100}
"""


@dataclass
class Agent:
    """Answers as an agent does, from lists filled by a test.

    Attributes:
        ended: nodes that have ended and were not reported yet.
        answers: return values or errors of the next calls of ``links``.
        launched: the names of the nodes so far, in that order.
        still: the names of the nodes that are stopped.
        begun: the names of those whose roles have begun, in that order.
        on_begin: called with each of them.
    """

    ended: list[Exit] = field(default_factory=list)
    answers: list[Any] = field(default_factory=list)
    launched: list[str] = field(default_factory=list)
    still: list[str] = field(default_factory=list)
    begun: list[str] = field(default_factory=list)
    on_begin: Callable[[str], Any] = lambda name: None

    def launch(self, launch: LaunchSpec) -> int:
        self.launched.append(launch.node.name)
        if not launch.held:
            self._begin(launch.node.name)
        return 1000 + len(self.launched)

    def signal(self, node: str, number: signal.Signals) -> None:
        assert number == ADMISSION
        self._begin(node)

    def _begin(self, name: str) -> None:
        self.begun.append(name)
        self.on_begin(name)

    def begin_launch(self, launch: LaunchSpec) -> Callable[[], int]:
        return lambda: self.launch(launch)

    def exits(self) -> list[Exit]:
        new, self.ended = self.ended, []
        return new

    def copy_records(self, *, whole: bool = False) -> None:
        """Do nothing: they are on this host."""

    def frozen(self) -> list[str]:
        return self.still

    def count(self) -> Traffic:
        return Traffic()

    def link_changes(self) -> list[Any]:
        return []

    def limit_changes(self) -> list[Any]:
        return []

    def links(self, *, as_created: bool = False) -> list[dict[str, Any]]:
        answer = self.answers.pop(0)
        if isinstance(answer, TestbedError):
            raise answer
        found: list[dict[str, Any]] = answer
        return found


@dataclass
class Driver:
    """Creates containers as a driver does, or leaves that to the agent.

    Attributes:
        makes: whether it creates them itself.
        contained: the requested containers.
        discarded: the discarded containers.
    """

    makes: bool = False
    contained: list[ContainerSpec] = field(default_factory=list)
    discarded: list[str] = field(default_factory=list)

    def contain(
        self, plan: Plan, folder: RunFolder, cells: Sequence[ContainerSpec]
    ) -> dict[str, int]:
        self.contained += cells
        return {cell.node.name: 500 + i for i, cell in enumerate(cells)} if self.makes else {}

    def discard(self, folder: RunFolder, nodes: Sequence[str]) -> None:
        self.discarded += nodes


@dataclass
class Small:
    """One run, its agent, and its visible output.

    Attributes:
        shown: output on the console.
        now: the clock's time; every read adds ``tick``.
    """

    setup: TrainingSetup
    recorder: Recorder
    shown: io.StringIO
    agent: Agent = field(default_factory=Agent)
    driver: Driver = field(default_factory=Driver)
    now: float = 100.0
    tick: float = 0.0

    def clock(self) -> float:
        self.now += self.tick
        return self.now

    def watch(self) -> TrainingWatch:
        agent: Any = self.agent
        return TrainingWatch(
            plan=self.setup.plan,
            folder=self.setup.folder,
            recorder=self.recorder,
            agent=agent,
            worker_status=WorkerStatusReporter(
                self.setup.folder.ps_socket, token_of(self.setup.secret, "controller")
            ),
            clock=self.clock,
        )

    def says(self, event: str, **fields: Any) -> None:
        """The parameter server writes an event."""
        with self.setup.folder.ps_events.open("a") as file:
            line = {"time": 0.0, "elapsed_seconds": None, "event": event, **fields}
            file.write(json.dumps(line) + "\n")

    def events(self) -> list[dict[str, Any]]:
        lines = self.setup.folder.events.read_text().splitlines()
        return [json.loads(line) for line in lines]


@pytest.fixture
def make_small(tmp_path: Path) -> Iterator[Callable[..., Small]]:
    """Sets a run up; options change the scenario."""
    with ExitStack() as cleanup:

        def make(*settings: str) -> Small:
            scenario = load_text(TEXT, overrides=[Override.parse(text) for text in settings])
            made = plan(scenario, "small-1")
            folder = RunFolder.create(
                tmp_path / "runs",
                "small-1",
                scenario="small",
                text=dump(scenario),
                classes=[node.device_class for node in made.workers],
                now=0.0,
            )
            setup = TrainingSetup(
                scenario=scenario,
                plan=made,
                folder=folder,
                data=tmp_path / "data",
                secret="s3cret",
                users=Users("root"),
            )
            shown = io.StringIO()
            display = LiveDisplay(Console(file=shown), Progress(Stop(updates=100)))
            recorder = cleanup.enter_context(
                Recorder.into(folder, time_scale=scenario.time_scale, sinks=[display])
            )
            return Small(setup, recorder, shown)

        yield make


@pytest.fixture
def small(make_small: Callable[..., Small]) -> Small:
    """Three workers."""
    return make_small()


TRAFFIC = Traffic(
    peers={"store": InterfaceCounters(900, 9, 500, 5), "job0": InterfaceCounters(1, 1, 2, 2)},
    retransmitted_in_bytes={"job0": 7},
)


@dataclass
class WorkloadAgent:
    """Answers as an agent does; tests say what has ended, who listens, and what was sent."""

    ended: list[Exit] = field(default_factory=list)
    launched: list[str] = field(default_factory=list)
    ports: dict[str, list[int]] = field(default_factory=dict)
    traffic: Traffic = TRAFFIC

    def begin_launch(self, launch: LaunchSpec) -> Callable[[], int]:
        self.launched.append(launch.node.name)
        return lambda: 1000 + len(self.launched)

    def exits(self) -> list[Exit]:
        new, self.ended = self.ended, []
        return new

    def running(self) -> list[str]:
        return self.launched

    def listening(self, node: str) -> list[int]:
        return self.ports.get(node, [])

    def count(self) -> Traffic:
        return self.traffic

    def usage(self) -> Usage:
        return Usage(
            down={"store": Queue(3, 0)}, containers={"store": ContainerUse(1.5, 10_000_000)}
        )

    def link_changes(self) -> list[Any]:
        return []

    def limit_changes(self) -> list[Any]:
        return []

    def links(self, *, as_created: bool = False) -> list[dict[str, Any]]:
        return [{"node": "store", "differences": [], "left_out": [], "unseeded": False}]


@dataclass
class SmallWorkload:
    """A workload, its agent and its clock."""

    folder: RunFolder
    recorder: Recorder
    watch: WorkloadWatch
    starts: Starts
    agent: WorkloadAgent
    now: list[float]
    timeline: Timeline | None = None

    def step(self, *ended: Exit) -> list[str]:
        """One round of the loop; the nodes launched so far."""
        self.agent.ended += ended
        self.watch.look()
        self.starts.step()
        self.starts.release()
        return self.agent.launched

    def events(self, kind: str) -> list[dict[str, Any]]:
        lines = map(json.loads, self.folder.events.read_text().splitlines())
        return [one for one in lines if one["event"] == kind]


@pytest.fixture
def make_workload(tmp_path: Path) -> Iterator[Callable[..., SmallWorkload]]:
    """Builds a workload whose programs do not run, from the text of a scenario."""
    with ExitStack() as cleanup:

        def make(text: str, stop: float | None = None) -> SmallWorkload:
            file = tmp_path / "small.yaml"
            file.write_text(text)
            workload = load_workload(file)
            plan = plan_workload(workload, "small-1")
            dumped = workload.model_dump(mode="json", by_alias=True, exclude_none=True)
            folder = RunFolder.create(
                tmp_path / "runs",
                "small-1",
                scenario="small",
                text=dump_data(dumped, "scenario"),
                classes=[],
                now=0.0,
            )
            display = WorkloadDisplay(Console(file=io.StringIO()), Progress())
            recorder = cleanup.enter_context(Recorder.into(folder, time_scale=1.0, sinks=[display]))
            agent: Any = WorkloadAgent()
            now = [100.0]
            present = node_availabilities(workload, lambda name: tmp_path / name)
            timeline = workload_timeline(workload, present)
            values = MetricValues(workload, recorder, timeline)
            output = Output(workload, folder, values, lambda line: timeline.printed(line, now=5.0))
            scraper = Scraper(workload, agent, values, lambda: now[0])
            watch = WorkloadWatch(
                *(plan, folder, recorder, agent, lambda: now[0], output, scraper), stop_seconds=stop
            )
            watch.begin()
            recorder.event(WorkloadBegun())
            driver: Any = type("Driver", (), {"contain": lambda *_: {}})()
            setup = WorkloadSetup(plan, folder, Users("root"), workload)
            deployment = Deployment(setup, driver, agent, watch, lambda: now[0])
            starts = Starts(workload, deployment, watch, timeline)
            return SmallWorkload(folder, recorder, watch, starts, agent, now, timeline)

        yield make
