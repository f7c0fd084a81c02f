"""The course of a workload: which programs start when, and what the exits of nodes mean."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from testbed.errors import NodeError
from testbed.faults.timeline import Timeline
from testbed.host.users import Users
from testbed.network.counters import InterfaceCounters, Traffic
from testbed.plan.workload import plan_workload
from testbed.reports.console import Console
from testbed.reports.live import Progress
from testbed.reports.live_workload import WorkloadDisplay
from testbed.reports.workload import WorkloadRun
from testbed.run.deploy import Deployment
from testbed.run.metric_values import MetricValues
from testbed.run.output import Output
from testbed.run.scraping import Scraper
from testbed.run.setup import WorkloadSetup
from testbed.run.workload import Starts
from testbed.run.workload_watch import WorkloadWatch
from testbed.runtimes.agent.launch import Exit, LaunchSpec
from testbed.scenario.dump import dump_data
from testbed.scenario.load_workload import load_workload
from testbed.scenario.workload_names import workload_timeline
from testbed.telemetry.event_kinds import (
    LinksRead,
    RateMeasured,
    RoundTripMeasured,
    StateChanged,
    WorkloadBegun,
)
from testbed.telemetry.folder import RunFolder
from testbed.telemetry.record import Recorder
from testbed.values.usage import ContainerUse, Queue, Usage

TEXT = """\
name: small
workload:
  store: {command: [serve], ports: {web: 8000}, end: fatal, link: {down: {rate: 10mbit}}}
  job: {command: [work], count: 2, after: {store: {listens: web}}}
"""
LAST = "  last: {command: [collect], after: {job: ended}}\n"


@dataclass
class Agent:
    """Answers as an agent does; tests say what has ended, and who listens."""

    ended: list[Exit] = field(default_factory=list)
    launched: list[str] = field(default_factory=list)
    ports: dict[str, list[int]] = field(default_factory=dict)

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
        peers = {"store": InterfaceCounters(900, 9, 500, 5), "job0": InterfaceCounters(1, 1, 2, 2)}
        return Traffic(peers=peers, retransmitted_in_bytes={"job0": 7})

    def usage(self) -> Usage:
        return Usage(
            down={"store": Queue(3, 0)}, containers={"store": ContainerUse(1.5, 10_000_000)}
        )

    def link_changes(self) -> list[Any]:
        return []

    def limit_changes(self) -> list[Any]:
        return []

    def links(self) -> list[dict[str, Any]]:
        return [{"node": "store", "differences": [], "left_out": [], "unseeded": False}]


@dataclass
class Small:
    """A workload, its agent and its clock."""

    folder: RunFolder
    recorder: Recorder
    watch: WorkloadWatch
    starts: Starts
    agent: Agent
    now: list[float]
    timeline: Timeline | None = None

    def step(self, *ended: Exit) -> list[str]:
        """One round of the loop; the nodes launched so far."""
        self.agent.ended += ended
        self.watch.look()
        self.starts.step()
        return self.agent.launched

    def events(self, kind: str) -> list[dict[str, Any]]:
        lines = map(json.loads, self.folder.events.read_text().splitlines())
        return [one for one in lines if one["event"] == kind]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., Small]]:
    with ExitStack() as cleanup:

        def make(text: str = TEXT, stop: float | None = None) -> Small:
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
            display = WorkloadDisplay(Console(file=io.StringIO()), Progress(None, None))
            recorder = cleanup.enter_context(Recorder.into(folder, time_scale=1.0, sinks=[display]))
            agent: Any = Agent()
            now = [100.0]
            timeline = workload_timeline(workload)
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
            starts = Starts(workload, deployment, watch)
            return Small(folder, recorder, watch, starts, agent, now, timeline)

        yield make


def test_programs_start_once_what_they_wait_for_has_happened(make: Any) -> None:
    small = make(TEXT + LAST)
    assert small.step() == ["store"]
    assert small.step() == ["store"]
    small.agent.ports["store"] = [22, 8000]
    assert small.step() == ["store", "job0", "job1"]
    assert small.step(Exit("job0", 0)) == ["store", "job0", "job1"]
    assert small.step(Exit("job1", 0))[-1] == "last"
    assert not small.watch.finished
    small.step(Exit("last", 0))
    assert small.watch.finished
    assert small.watch.ending == "all final programs have ended with status 0"
    assert [one["reason"] for one in small.events("workload_ended")] == [small.watch.ending]


def test_a_condition_that_has_held_need_not_last(make: Any) -> None:
    text = TEXT + LAST.replace("job: ended}", 'job: ended, store: {prints: "re+ady"}}')
    small = make(text)
    small.step()
    small.folder.log("store").write_text("not yet\nreeady now\n")
    small.agent.ports["store"] = [8000]
    small.step()
    small.agent.ports.clear()
    small.folder.log("store").write_text("")
    small.agent.ended = [Exit("job0", 0)]
    assert small.step() == ["store", "job0", "job1"]
    small.agent.ended = [Exit("job1", 0)]
    assert small.step()[-1] == "last"


def test_a_port_at_which_nobody_listens_is_named_with_those_that_are_open(make: Any) -> None:
    small = make()
    small.step()
    small.agent.ports["store"] = [80]
    small.folder.log("store").write_text("listening at 80\n")
    small.now[0] += 60.0
    small.step()
    small.now[0] += 0.1
    with pytest.raises(NodeError) as failure:
        small.step()
    assert failure.value.message == (
        "workload.job.after.store: that store listens on port web has not happened within 1min "
        "(it listens at 80); it printed:\n    listening at 80"
    )
    assert "within" in failure.value.hint


def test_waiting_for_a_node_that_has_ended_otherwise_fails_at_once(make: Any) -> None:
    small = make(TEXT.replace("end: fatal", "end: noticed"))
    small.step()
    with pytest.raises(NodeError, match="store exited with status 3, but that store listens"):
        small.step(Exit("store", 3))


@pytest.mark.parametrize(("node", "status"), [("store", 0), ("store", 1), ("job0", 2)])
def test_a_needed_node_that_ends_fails_the_run(make: Any, node: str, status: int) -> None:
    small = make()
    small.agent.ports["store"] = [8000]
    small.step()
    small.step()
    small.folder.log(node).write_text("oh no\n")
    with pytest.raises(NodeError, match=f"{node} exited with status {status}; it printed:\n.*oh"):
        small.step(Exit(node, status))
    assert [one["ends_run"] for one in small.events("exited")] == [True]


def test_a_node_that_a_fault_killed_for_good_counts_as_ended(make: Any) -> None:
    small = make()
    small.agent.ports["store"] = [8000]
    small.step()
    small.step()
    small.watch.planned_exits.ending.add("job1")
    small.watch.look()
    small.agent.ended = [Exit("job0", 0), Exit("job1", -9)]
    small.watch.look()
    assert small.watch.ending == (
        "all final programs have ended with status 0, except job1, killed by faults"
    )
    assert [one["planned"] for one in small.events("exited")] == [True, True]


def test_a_node_that_a_fault_restarts_has_not_ended(make: Any) -> None:
    small = make(
        TEXT.replace(", after: {store: {listens: web}}", "").replace("count: 2", "count: 1")
    )
    small.step()
    small.watch.planned_exits.ending.add("job")
    small.watch.planned_exits.restarting.add("job")
    small.agent.ended = [Exit("job", -9)]
    small.watch.look()
    assert not small.watch.finished
    assert not small.watch.planned_exits.ending


def test_the_time_of_stop_ends_a_workload_well(make: Any) -> None:
    small = make(stop=0.0)
    small.step()
    assert small.watch.ending == "stop.time of 0 s has passed"
    small.agent.ended = [Exit("store", -15)]  # ended with the run
    small.watch.look()
    assert [one["how"] for one in small.events("exited")] == [""]


def test_readings_of_every_node_are_in_the_summary(make: Any) -> None:
    small = make()
    small.step()
    small.watch.count()
    small.recorder.event(StateChanged("running"))
    small.agent.ended = [Exit("store", 3)]
    with pytest.raises(NodeError):
        small.watch.look()
    small.recorder.event(StateChanged("failed", "store exited with status 3", 5))
    summary = WorkloadRun(small.folder.path).summarise()
    assert summary["workload"] == {"store": 1, "job": 2}
    assert summary["nodes"]["store"] == {
        "program": "store",
        "exit_status": 3,
        **{"up_bytes": 500, "up_packets": 5, "down_bytes": 900, "down_packets": 9},
        **{"retransmitted_bytes": 0, "dropped_packets": 3},
        **{"cpu_seconds": 1.5, "memory_bytes_max": 10_000_000},
    }
    job = summary["nodes"]["job0"]
    assert (job["up_bytes"], job["retransmitted_bytes"], job["memory_bytes_max"]) == (2, 7, None)
    assert summary["nodes"]["job1"]["up_bytes"] is None
    assert not summary["verdict"]["valid"]
    assert summary["verdict"]["reasons"][0].startswith("The run failed: store exited with status 3")


@pytest.mark.parametrize(
    ("link", "valid"),
    [("rate: 10mbit", True), ("loss: 0.01", True), ("delay: 20ms", False)],
)
def test_packets_may_be_dropped_where_the_scenario_says_so(
    make: Any, link: str, valid: bool
) -> None:
    small = make(TEXT.replace("rate: 10mbit", link), stop=0.0)
    small.step()
    small.watch.count()
    small.recorder.event(StateChanged("finished", small.watch.ending))
    reasons = WorkloadRun(small.folder.path).summarise()["verdict"]["reasons"]
    assert [one.partition(",")[0] for one in reasons] == (
        [] if valid else ["store: 3 packets to it were dropped"]
    )


def append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def test_links_that_are_not_as_configured_make_a_run_invalid(make: Any) -> None:
    small = make(stop=0.0)
    small.step()
    for event in (
        RateMeasured("class job up", 1e6, 0.94e6),
        RateMeasured("class job down", 1e6, None),
        RoundTripMeasured("class job", 0.02, 0.0225),
        RoundTripMeasured("class store", 0.02, 0.0209),
        LinksRead(2, ("job0: up: rate",), ("class job: up.delay 20ms",)),
        StateChanged("finished", small.watch.ending),
    ):
        small.recorder.event(event)
    verdict = WorkloadRun(small.folder.path).summarise()["verdict"]
    assert [reason.partition(".")[0] for reason in verdict["reasons"]] == [
        "A link in the kernel differs from the plan: job0: up: rate",
        "class job up: the measured rate of 0",
        "class job: the measured round trip of 22",
        "Some link settings were skipped (network",
    ]
    assert verdict["unchecked"] == [
        "the rate of class job down, because the host cannot send that fast"
    ]


METRICS = """\
name: small
workload:
  job:
    command: [work]
    count: 2
    metrics:
      accuracy: {regex: "acc=([0-9.]+)"}
      loss: {regex: "loss ([^ ]+)", better: lower}
      speed: {regex: "speed (.*)"}
stop: {metrics: {accuracy: 0.9}}
faults:
  - freeze: {nodes: [job1], at: {log: "^round 2"}, for: 1s}
"""


def test_printed_numbers_are_on_record_and_may_end_the_run(make: Any) -> None:
    small = make(METRICS)
    small.step()
    small.folder.log("job0").write_text("acc=0.5 loss 3\nacc=. loss nan\nloss 2.5\n")
    small.folder.log("job1").write_text("acc=0.7 loss inf\nacc=0.6")
    small.step()
    assert small.watch.ending == ""
    append(small.folder.log("job1"), "5\nacc=0.92\nacc=0.4\n")
    small.watch.look()
    assert small.watch.ending == "accuracy of job1 has reached 0.9: 0.92"
    small.recorder.event(StateChanged("finished", small.watch.ending))
    run = WorkloadRun(small.folder.path)
    rows = [(row.node, row.metric, row.value) for row in run.metrics.itertuples()]
    assert rows == [
        *(("job0", "accuracy", 0.5), ("job0", "loss", 3.0), ("job0", "loss", 2.5)),
        *(("job1", "accuracy", 0.7), ("job1", "accuracy", 0.65)),
        *(("job1", "accuracy", 0.92), ("job1", "accuracy", 0.4)),
    ]
    summary = run.summarise()
    accuracy, loss = summary["metrics"]["accuracy"], summary["metrics"]["loss"]
    assert (accuracy["count"], accuracy["last"]) == (5, 0.4)
    assert (accuracy["best"]["value"], accuracy["best"]["node"]) == (0.92, "job1")
    assert (loss["best"]["value"], loss["best"]["node"], loss["last"]) == (2.5, "job0", 2.5)
    assert summary["metrics"]["speed"] == {"count": 0, "best": None, "last": None}
    warnings = summary["verdict"]["warnings"]  # this host may be busy
    (warning,) = (one for one in warnings if not one.startswith("The host was more than"))
    assert warning.startswith("The metric speed of job was never printed: no line with a number")
    assert "testbed logs small-1 job0" in warning


def test_a_line_triggers_a_fault(make: Any) -> None:
    small = make(METRICS)
    small.step()
    small.folder.log("job0").write_text("not round 2\n")
    small.step()
    assert small.timeline.next_time == float("inf")
    append(small.folder.log("job0"), "round 2 begins\n")
    small.step()
    assert small.timeline.next_time == 5.0
    (action,) = small.timeline.due(5.0)
    assert small.timeline.named(action.workers) == ("job1",)
