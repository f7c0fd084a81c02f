"""The course of a workload: which programs start when, and what the exits of nodes mean."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from testbed.errors import NodeError
from testbed.network.counters import Traffic
from testbed.network.frames import Frames
from testbed.network.ledgers import Pair
from testbed.reports.workload import WorkloadRun
from testbed.runtimes.agent.launch import Exit
from testbed.telemetry.event_kinds import LinksRead, RateMeasured, RoundTripMeasured, StateChanged

TEXT = """\
name: small
workload:
  store: {command: [serve], ports: {web: 8000}, end: fatal, link: {down: {rate: 10mbit}}}
  job: {command: [work], count: 2, after: {store: {listens: web}}}
"""
LAST = "  last: {command: [collect], after: {job: ended}}\n"


@pytest.fixture
def make(make_workload: Callable[..., Any]) -> Callable[..., Any]:
    def make(text: str = TEXT, stop: float | None = None) -> Any:
        return make_workload(text, stop)

    return make


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


def test_waiting_for_a_daemon_fails_with_how_to_start_it(make: Any) -> None:
    small = make(TEXT.replace("end: fatal", "end: expected"))
    small.step()
    with pytest.raises(NodeError, match="store exited with status 0, but that store") as failure:
        small.step(Exit("store", 0))
    assert "run servers in the foreground, not as daemons" in failure.value.hint


@pytest.mark.parametrize(("nodes", "nothing"), [(101, 0), (102, None)])
def test_tcp_of_peers_beyond_a_hundred_is_empty(make: Any, nodes: int, nothing: int | None) -> None:
    """Of 101 nodes, each has 100 peers, all of which are counted by name."""
    small = make(TEXT.replace("count: 2", f"count: {nodes - 1}"))
    small.step()
    address = {one.name: one.link.address for one in small.watch.plan.nodes}
    frames = {address["job0"]: {address["store"]: Frames(1042, 1), address["job1"]: Frames(99, 1)}}
    tcp = {"job0": {address["store"]: Pair(8, 9, 0, 0.5), "": Pair(7, 7, 7, None)}}
    small.agent.traffic = Traffic(pairs=tcp, frames=frames)
    small.watch.count()
    small.recorder.event(StateChanged("running"))
    pairs = WorkloadRun(small.folder.path).summarise()["pairs"]["job0"]
    names = ("sent_bytes", "received_bytes", "retransmitted_bytes", "frame_bytes", "packets")
    assert [pairs["store"][name] for name in names] == [8, 9, 0, 1042, 1]
    assert [pairs["job1"][name] for name in names] == [nothing] * 3 + [99, 1]
    assert [pairs["others"][name] for name in names] == [7, 7, 7, None, None]


@pytest.mark.parametrize(("node", "status"), [("store", 0), ("store", 1), ("job0", 2)])
def test_a_needed_node_that_ends_fails_the_run(make: Any, node: str, status: int) -> None:
    small = make()
    small.agent.ports["store"] = [8000]
    small.step()
    small.step()
    small.folder.log(node).write_text("oh no\n")
    found = f"{node} exited with status {status}; it printed:\n.*oh"
    with pytest.raises(NodeError, match=found) as failure:
        small.step(Exit(node, status))
    assert ("not as daemons" in failure.value.hint) == (status == 0)
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
        "all final programs have ended with status 0, except job1, killed by a fault"
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
  - partition: {nodes: [job0], at: {log: "^round 2"}, until: {log: "^round 4"}}
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
    found = summary["verdict"]["warnings"]  # this host may be busy
    warning, *others = (one for one in found if not one.startswith("The host was more than"))
    assert others == [
        f"The {kind} never began: it waited for a line with '^round 2'."
        for kind in ("freeze of faults.0", "partition of faults.1")
    ]
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
    begun = [small.timeline.named(action.workers) for action in small.timeline.due(5.0)]
    assert begun == [("job1",), ("job0",)]
    append(small.folder.log("job0"), "round 4 begins\n")
    small.step()
    (end,) = small.timeline.due(5.5)
    assert (end.fault.kind, end.begins) == ("partition", False)
