"""Workers that are present according to traces: times worked by hand."""

from __future__ import annotations

from pydantic import TypeAdapter

from testbed.faults import Fault
from testbed.faults.base import TimedFault
from testbed.faults.population import Availability
from testbed.faults.timeline import Timeline
from testbed.values.traces import Trace

FAULTS = TypeAdapter(tuple[Fault, ...])

SHIFTS = Trace((0.0, 4.0, 6.0), (1.0, 0.0, 1.0), 9.0, repeats=True)
"""There until 4, away until 6, there until 13 (9 + 4), away until 15, and so on."""

ONCE = Trace((0.0, 2.0, 5.0), (0.0, 1.0, 0.0), 5.0, repeats=False)
"""Away until 2, there until 5, then away for good."""


def timeline(*availabilities: Availability, faults: tuple[dict[str, object], ...] = ()) -> Timeline:
    plans = FAULTS.validate_python(faults)
    return Timeline.of(plans, ["all"] * 3, seed=0, availabilities=availabilities)


def actions(subject: Timeline, until: float) -> list[tuple[float, bool, tuple[int, ...]]]:
    return [(action.planned, action.begins, action.workers) for action in subject.due(until)]


def test_workers_join_and_leave_at_the_times_of_their_traces() -> None:
    """w1 is 5 s ahead in its trace: absent from 0 (5 - 5) to 1, then from 8 (13 - 5) to 10."""
    subject = timeline(Availability(0, SHIFTS), Availability(1, SHIFTS, 5.0), Availability(2, ONCE))
    assert subject.population.absent == {1, 2}
    assert actions(subject, 13.0) == [
        *((1.0, True, (1,)), (2.0, True, (2,)), (4.0, False, (0,)), (5.0, False, (2,))),
        *((6.0, True, (0,)), (8.0, False, (1,)), (10.0, True, (1,)), (13.0, False, (0,))),
    ]
    assert subject.population.absent == {0, 2}
    assert subject.next_time == 15.0


def test_future_joins_are_known_in_advance() -> None:
    """w2 joins once; w0 and w1 repeatedly; a worker that is always present never joins."""
    always = Trace((0.0,), (1.0,), 9.0, repeats=True)
    subject = timeline(Availability(0, SHIFTS), Availability(1, always), Availability(2, ONCE))
    assert (subject.to_come, subject.returning) == ([2], {0})


def test_faults_skip_absent_workers() -> None:
    """The freeze of w0 at 5 s is skipped; that at 7 s ends when w0 is switched off."""
    freeze = {"workers": ("w0", "w1"), "at": {"time": "5s"}, "for": "500ms"}
    again = {"workers": ("w0",), "at": {"time": "7s"}}
    faults = ({"freeze": freeze}, {"freeze": again})
    subject = timeline(Availability(0, SHIFTS), faults=faults)
    found = [(one.planned, one.workers, one.passed_over) for one in subject.due(8.0)]
    assert found == [
        *((4.0, (0,), ()), (5.0, (1,), (0,)), (5.5, (1,), (0,)), (6.0, (0,), ()), (7.0, (0,), ()))
    ]
    assert subject.population.active("freeze") == {0: 1}
    assert actions(subject, 15.0) == [(13.0, False, (0,)), (15.0, True, (0,))]
    assert subject.population.active("freeze") == {}


def test_a_crashed_worker_stays_absent() -> None:
    faults = ({"crash": {"after_push": 0.5}},)
    subject = timeline(Availability(0, SHIFTS), faults=faults)
    subject.crash(0, planned=1.0, actual=1.0)
    assert actions(subject, 30.0) == []


class Written:
    """An actuator that records its calls."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int]] = []

    def begin(self, fault: TimedFault, target: int) -> None:
        self.asked.append((fault.kind, target))


def test_switching_off_is_a_leave_and_switching_on_a_join() -> None:
    subject, actuator = timeline(Availability(0, SHIFTS)), Written()
    events = [
        subject.carry_out(action, actuator, clock=lambda: action.planned)  # type: ignore[arg-type]  # noqa: B023
        for action in subject.due(6.0)
    ]
    assert actuator.asked == [("leave", 0), ("join", 0)]
    assert [(one.kind, one.begins, one.nodes, one.place) for one in events] == [
        *(("leave", True, ("w0",), None), ("join", True, ("w0",), None))
    ]
    assert all(one.recorded for one in events)


def of_nodes(*availabilities: Availability, faults: tuple[dict[str, object], ...] = ()) -> Timeline:
    """The timeline of a workload with the nodes a, b and c, numbered from 0."""
    plans = FAULTS.validate_python(faults)
    return Timeline.of(plans, (), seed=0, availabilities=availabilities, others=["a", "b", "c"])


def test_faults_on_a_process_that_lasts_end_while_its_node_is_absent() -> None:
    """a is away from 4 to 6: the partition of 3.5 s ends at 4.5 s, the one of 5 s is skipped."""
    faults = tuple(
        {"partition": {"nodes": ("a",), "at": {"time": at}, "for": "1s"}} for at in ("3500ms", "5s")
    )
    subject = of_nodes(Availability(0, SHIFTS, stays=True), faults=faults)
    found = [(one.planned, one.fault.kind, one.begins, one.workers) for one in subject.due(6.0)]
    assert found == [
        *((3.5, "partition", True, (0,)), (4.0, "leave", False, (0,))),
        *((4.5, "partition", False, (0,)), (5.0, "partition", True, ()), (6.0, "join", True, (0,))),
    ]
    assert not subject.population.active("partition")


def test_who_is_away_and_who_has_departed() -> None:
    """c comes at 2 and leaves for good at 5; a, away from 4, has ended by itself at 5."""
    subject = of_nodes(Availability(0, SHIFTS), Availability(2, ONCE))
    assert (subject.away, subject.departed) == ({2}, set())
    assert len(actions(subject, 5.0)) == 3
    assert (subject.away, subject.departed) == ({0, 2}, {2})
    subject.retire(0)
    assert subject.departed == {0, 2}
    assert actions(subject, 30.0) == []


def test_a_node_that_never_comes_has_departed_at_once() -> None:
    never = Trace((0.0,), (0.0,), 9.0, repeats=True)
    assert of_nodes(Availability(1, never)).departed == {1}
