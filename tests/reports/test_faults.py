"""Effects of faults on a run's measures: workers absent by plan are neither lost nor slow."""

from __future__ import annotations

from math import inf

import pandas as pd
import pytest

from testbed.reports import history, measures
from testbed.reports.history import RunHistory
from testbed.reports.measurements import Measurements
from testbed.reports.verdict import judge
from testbed.telemetry.entry import Entry
from testbed.telemetry.event import Event
from testbed.telemetry.event_kinds import Exited, FaultApplied
from testbed.telemetry.ps_events import Gap, Joined, Left


def entries(*events: Event) -> list[Entry]:
    return [Entry(0.0, 0.0, event) for event in events]


def fault(kind: str, node: str, planned: float, actual: float, *, begins: bool = True) -> Event:
    return FaultApplied(kind, begins, (node,), planned, actual, 0)


EVENTS = entries(
    fault("freeze", "w1", 2.0, 2.1),
    fault("freeze", "w1", 6.0, 6.1, begins=False),
    fault("crash", "w2", 3.0, 3.1),
    fault("kill", "w3", 4.0, 9.0),
    Exited("w3", -9, planned=True, how="w3 was ended by SIGKILL"),
    Left("w3", "w3 was ended by SIGKILL"),
    Exited("w4", -9),
)


def test_the_targets_of_faults() -> None:
    assert RunHistory.of(EVENTS).struck == {"freeze": 1, "crash": 1, "kill": 1}


def test_a_worker_absent_by_plan_is_not_lost() -> None:
    assert RunHistory.of(EVENTS).lost() == [("w4", "killed by signal 9")]


def test_a_worker_removed_while_frozen_is_not_lost_but_one_that_returned_may_be() -> None:
    removed = entries(fault("freeze", "w1", 2.0, 2.0), Left("w1", "unheard"), Exited("w1", 8))
    assert RunHistory.of(removed).lost() == []
    back = [*EVENTS[:-1], *entries(Joined("w3"), Exited("w3", 5))]
    assert RunHistory.of(back).lost() == [("w3", "ended with status 5")]


def test_a_fault_that_is_late_makes_the_run_invalid() -> None:
    """The kill came 5 emulated seconds late: 2.5 of the host's at a time scale of 2."""
    late = history.late_faults(EVENTS, 2.0)
    assert late == [("kill of w3", 2.5)]
    (reason,) = judge(Measurements("finished", late_faults=late)).reasons
    assert reason.startswith("kill of w3 was 2.50 s late in real time (1 s is allowed)")
    assert history.late_faults(EVENTS, 5.0) == []


def test_gaps_by_plan_are_none() -> None:
    """w1 was asked to stand still for 2 real seconds, w2 for good."""
    planned = history.planned_gaps(RunHistory.of(EVENTS).faults, 2.0)
    assert planned == {"w1": pytest.approx(2.0), "w2": inf}
    gaps = entries(Gap("w1", 2.5), Gap("w2", 60.0), Gap("w0", 3.0))
    assert measures.gaps(gaps, planned=planned) == {"w1": pytest.approx(0.5), "w0": 3.0}


def test_a_step_with_a_freeze_does_not_count_for_the_speed() -> None:
    updates = pd.DataFrame(
        {"worker": [1, 0, 1, 1], "time_seconds": [1.0, 3.0, 6.5, 7.0]}
        | {"node": ["w1", "w0", "w1", "w1"]}
    )
    assert list(history.undisturbed(updates, EVENTS)["time_seconds"]) == [1.0, 3.0, 7.0]
    back = entries(fault("join", "w1", 6.0, 6.1))  # the next cycle holds its absence
    assert list(history.undisturbed(updates, back)["time_seconds"]) == [1.0, 3.0, 7.0]
