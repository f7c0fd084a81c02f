"""The states of workers, event by event."""

from __future__ import annotations

import pytest

from testbed.reports.history import FaultSpan, RunHistory
from testbed.reports.metrics.outline import worker_state
from testbed.telemetry.entry import Entry
from testbed.telemetry.event import Event
from testbed.telemetry.event_kinds import Exited, FaultApplied, Resumed, StateChanged
from testbed.telemetry.ps_events import Crashed, Finished, Gap, Joined, Left, Silent, Started


def fault(kind: str, begins: bool, *nodes: str) -> FaultApplied:
    return FaultApplied(kind, begins, nodes, 1.0, 1.5)


def history(*events: Event) -> RunHistory:
    return RunHistory.of(Entry(0.0, 0.0, event) for event in events)


def test_the_counts_of_workers_by_state() -> None:
    found = history(
        *(Joined(f"w{index}") for index in range(7)),
        fault("freeze", True, "w1", "w2"),
        fault("freeze", False, "w2"),
        fault("kill", True, "w3"),
        Exited("w3", -9),
        Left("w3", "w3 was ended by SIGKILL"),
        Exited("w4", 1),
        Silent("w5"),
        Left("w6"),
        Finished("done", 9),
        Left("w0"),
    )
    assert [found.state(f"w{index}") for index in range(8)] == [
        *("running", "frozen", "running", "killed", "lost", "silent", "left", "absent")
    ]
    assert [worker_state(found, f"w{index}") for index in range(8)] == [
        *("running", "frozen", "running", "left", "lost", "frozen", "left", "absent")
    ]


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([], "absent"),
        ([Joined("w1"), Started()], "absent"),
        ([Joined("w0"), Silent("w0"), Gap("w0", 40.0)], "running"),
        ([fault("freeze", True, "w0"), Silent("w0"), fault("freeze", False, "w0")], "running"),
        ([fault("freeze", True, "w0"), Silent("w0"), Exited("w0", -9)], "lost"),
        ([Left("w0"), Exited("w0", -11)], "lost"),
        ([Exited("w0", 1, restarted=True), Joined("w0")], "running"),
        ([fault("kill", True, "w0"), fault("freeze", False, "w0")], "killed"),
        ([fault("kill", True, "w0"), fault("kill", False, "w0")], "running"),
        ([Crashed("w0", 3, 1.0), fault("crash", True, "w0"), Left("w0")], "crashed"),
        ([Joined("w0"), StateChanged("interrupted"), Exited("w0", -9)], "running"),
        ([StateChanged("interrupted"), Resumed(3, 1.0), fault("leave", True, "w0")], "left"),
    ],
)
def test_the_state_of_a_worker(events: list[Event], expected: str) -> None:
    assert history(*events).state("w0") == expected


def test_a_crashed_and_removed_worker_has_left_as_in_the_metrics() -> None:
    crashed = [fault("crash", True, "w0"), Left("w0", "unheard")]
    assert worker_state(history(*crashed[:1]), "w0") == "frozen"
    assert worker_state(history(*crashed), "w0") == "left"


def test_a_fault_recorded_after_its_effect_explains_it() -> None:
    assert history(Left("w0"), fault("leave", True, "w0")).lost() == []


def test_a_node_with_two_faults_has_two_spans() -> None:
    found = history(
        fault("kill", True, "w0"),
        Joined("w0"),
        fault("kill", True, "w0"),
        fault("link", True, "w1"),
        fault("link", False, "w1"),
    )
    kill = FaultSpan("kill", "w0", 1.0, 1.5)
    assert found.faults == [kill, kill, FaultSpan("link", "w1", 1.0, 1.5, 1.5)]
    assert found.struck == {"kill": 2, "link": 1}
    assert {*found.active} == {("kill", "w0")}


def test_a_host_that_was_lost_before_the_end_and_noticed_after_it_counts() -> None:
    done = (Joined("w0"), Joined("w1"), Finished("done", 9))
    assert history(*done, Exited("w0", -9)).lost() == []
    how = "w1: its host b is lost: its agent does not answer"
    found = history(*done, Exited("w1", -9, how=how, host_lost=True))
    assert found.lost() == [("w1", how.removeprefix("w1: "))]
