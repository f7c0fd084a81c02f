"""The times of faults, worked by hand."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import TypeAdapter

from testbed.errors import HostLostError, NodeError
from testbed.faults import Fault
from testbed.faults.base import TimedFault
from testbed.faults.check import contradictions
from testbed.faults.population import Contradiction
from testbed.faults.timeline import Timeline, crashes
from testbed.values.seeds import stream

FAULTS = TypeAdapter(tuple[Fault, ...])
CLASSES = ("fast",) * 6 + ("slow",) * 4
Done = list[tuple[float, bool, int, tuple[int, ...]]]


def timeline(*faults: dict[str, Any], seed: int = 0) -> Timeline:
    return Timeline.of(FAULTS.validate_python(faults), CLASSES, seed=seed)


def done(subject: Timeline, now: float) -> Done:
    return [(one.planned, one.begins, one.place, one.workers) for one in subject.due(now)]


def freeze(at: str, worker: str = "w3", **others: Any) -> dict[str, Any]:
    return {"freeze": {"at": {"time": at}, "workers": (worker,), **others}}


FAST = {"rate": "1gbit"}


def held(kind: str, at: str, lasts: str, **others: Any) -> dict[str, Any]:
    return {kind: {"at": {"time": at}, "workers": ("w3",), "for": lasts, **others}}


def test_a_recurring_fault_starts_and_ends_repeatedly() -> None:
    """From 2 to 3, from 7 to 8, from 12 to 13 ..."""
    subject = timeline(freeze("2s", **{"for": "1s", "every": "5s"}))
    assert subject.next_time == 2.0
    assert done(subject, 1.9) == []
    assert done(subject, 8.0) == [
        *((2.0, True, 0, (3,)), (3.0, False, 0, (3,))),
        *((7.0, True, 0, (3,)), (8.0, False, 0, (3,))),
    ]
    assert subject.next_time == 12.0


def test_faults_end_before_others_start_at_the_same_time() -> None:
    subject = timeline(freeze("4s"), freeze("2s", **{"for": "2s"}))
    assert done(subject, 9.0) == [(2.0, True, 1, (3,)), (4.0, False, 1, (3,)), (4.0, True, 0, (3,))]


def test_versions_and_accuracies_trigger_when_reached() -> None:
    subject = timeline(
        {"freeze": {"at": {"version": 100}, "workers": ("w1",), "for": "2s"}},
        {"kill": {"at": {"accuracy": 0.5}, "workers": ("w2",)}},
    )
    assert not subject.reached(99, now=1.0)
    assert subject.reached(101, now=1.5)
    assert not subject.reached(102, now=1.6)
    assert not subject.evaluated({"accuracy": 0.49}, now=1.7)
    assert subject.evaluated({"accuracy": 0.5}, now=1.8)
    assert not subject.waits
    assert done(subject, 4.0) == [
        *((1.5, True, 0, (1,)), (1.8, True, 1, (2,)), (3.5, False, 0, (1,))),
    ]


def test_values_of_metrics_trigger_when_one_is_reached() -> None:
    """Lower losses and errors are better; a value that is not defined reaches nothing."""
    at = {"metrics": {"rmse": 0.5, "clients_worst": 0.8}}
    plans = [
        {"kill": {"at": at, "workers": ("w1",)}},
        {"kill": {"at": {"loss": 0.3}, "workers": ("w2",)}},
        {"kill": {"at": {"metrics": {"clients_worst": 0.9}}, "workers": ("w3",)}},
    ]
    subject = Timeline.of(FAULTS.validate_python(plans), CLASSES, seed=0, lower=["rmse"])
    begun: list[tuple[float, list[int]]] = []
    for now, found in enumerate(
        [
            {"rmse": 0.6, "clients_worst": 0.7, "loss": 0.31},
            {"rmse": None, "clients_worst": None, "loss": None},
            {"rmse": 0.5, "clients_worst": 0.7, "loss": 0.31},
            {"rmse": 0.5, "clients_worst": 0.95, "loss": 0.3},
        ]
    ):
        if subject.evaluated({**found, "accuracy": None}, now=float(now)):
            struck = sorted(one for action in subject.due(now) for one in action.workers)
            begun.append((float(now), struck))
    assert begun == [(2.0, [1]), (3.0, [2, 3])]
    assert [str(fault.at) for fault in subject.faults] == [
        "rmse 0.5 or clients_worst 0.8",
        "loss 0.3",
        "clients_worst 0.9",
    ]


def test_lines_and_metrics_end_faults() -> None:
    """An end counts from the beginning on, and follows it if both are reached at once."""
    rounds = {"at": {"log": "round 3"}, "until": {"log": "round [5-9]"}}
    plans = [
        {"freeze": {"nodes": ["producer0"], **rounds}},
        {"kill": {"nodes": ["broker"], "at": {"time": "2s"}, "until": {"metrics": {"acc": 0.5}}}},
    ]
    subject = Timeline.of(FAULTS.validate_python(plans), (), seed=0, others=FEEDERS)
    broker, producer = ((FEEDERS.index(name),) for name in ("broker", "producer0"))
    assert not subject.printed("round 5", now=0.5)
    assert not subject.evaluated({"acc": 0.9}, now=0.6)
    assert done(subject, 3.0) == [(2.0, True, 1, broker)]
    assert subject.printed("round 3", now=3.0)
    assert subject.printed("round 6", now=3.0)
    assert subject.evaluated({"acc": 0.6}, now=4.0)
    assert not subject.waits
    assert [one[1:] for one in done(subject, 5.0)] == [
        *((True, 0, producer), (False, 0, producer), (False, 1, broker)),
    ]
    assert not any(contradictions([*subject.faults] * 2, (), seed=0, others=FEEDERS))


def test_an_end_at_a_line_is_recorded_although_its_node_has_left() -> None:
    rounds = {"at": {"time": "1s"}, "until": {"log": "round 5"}}
    plans = FAULTS.validate_python([{"freeze": {"nodes": ["broker"], **rounds}}])
    subject = Timeline.of(plans, (), seed=0, others=FEEDERS)
    broker = FEEDERS.index("broker")
    assert done(subject, 2.0) == [(1.0, True, 0, (broker,))]
    subject.population.end_faults(broker)
    assert subject.printed("round 5", now=3.0)
    assert [one[1:] for one in done(subject, 4.0)] == [(False, 0, ())]


def test_selectors_counts_and_shares() -> None:
    """Half of four slow workers are two; drawn from the seed and the position in the list."""
    kill = {"at": {"time": "1s"}}
    subject = timeline(
        {"kill": {**kill, "workers": ("w1", "class=slow")}},
        {"kill": {**kill, "workers": ("class=slow",), "share": 0.5}},
        {"kill": {**kill, "count": 3}},
        {"kill": {**kill, "count": 3}},
        seed=7,
    )
    assert subject.targets[0] == (1, 6, 7, 8, 9)
    half = stream(7, "faults", "1").choice([6, 7, 8, 9], 2, replace=False)
    assert subject.targets[1] == tuple(sorted(half))
    assert len(set(subject.targets[2])) == len(set(subject.targets[3])) == 3
    assert subject.targets[2] != subject.targets[3]


def test_crashed_workers_are_skipped_and_lost_ones_end_the_run() -> None:
    subject = timeline(
        {"crash": {"after_push": 0.1, "workers": ("w3",)}},
        {"leave": {"at": {"time": "5s"}, "workers": ("w3", "w4")}},
        {"kill": {"at": {"time": "6s"}, "workers": ("w5",)}},
    )
    event = subject.crash(3, planned=4.0, actual=4.5)
    assert (event.kind, event.nodes, event.place) == ("crash", ("w3",), 0)
    (action,) = subject.due(5.0)
    assert (action.workers, action.passed_over) == ((4,), (3,))
    subject.population.mark_absent(5)  # not by a fault
    with pytest.raises(Contradiction, match="kill of w5, which is absent"):
        list(subject.due(6.0))


def test_a_killed_worker_is_not_thawed() -> None:
    subject = timeline(
        freeze("1s", **{"for": "5s"}), {"kill": {"at": {"time": "2s"}, "workers": ("w3",)}}
    )
    assert done(subject, 9.0) == [(1.0, True, 0, (3,)), (2.0, True, 1, (3,))]


def test_a_worker_whose_first_fault_is_a_join_is_absent_at_the_start() -> None:
    join, leave = ({"at": {"time": at}, "workers": ("w1",)} for at in ("5s", "3s"))
    assert timeline({"join": join}).population.absent == {1}
    assert timeline({"join": join}, {"leave": leave}).population.absent == set()
    assert timeline({"join": join}, {"leave": leave}).to_come == [1]
    by_version = {"at": {"version": 10}, "workers": ("w1",)}
    assert timeline({"kill": by_version}, {"join": by_version}).population.absent == set()


FEEDERS = ("producer0", "producer1", "broker")


def kill(at: str, *nodes: str, **others: Any) -> dict[str, Any]:
    return {"kill": {"at": {"time": at}, "nodes": nodes, **others}}


def feeding(*faults: dict[str, Any], restarted: bool = False) -> Timeline:
    plans = FAULTS.validate_python(faults)
    return Timeline.of(plans, CLASSES, seed=0, others=FEEDERS, restarted=restarted)


def test_nodes_that_feed_streams_are_numbered_after_the_workers() -> None:
    """Ten workers, so producer0 is 10 and the broker 12; it is absent from 2 to 5."""
    partition = {"at": {"time": "3s"}, "for": "1s", "nodes": ("producer*",)}
    subject = feeding(kill("2s", "broker", **{"for": "3s"}), {"partition": partition})
    assert subject.targets == [(12,), (10, 11)]
    actions = list(subject.due(9.0))
    assert [(one.planned, one.begins, one.workers) for one in actions] == [
        *((2.0, True, (12,)), (3.0, True, (10, 11))),
        *((4.0, False, (10, 11)), (5.0, False, (12,))),
    ]
    assert subject.named(actions[1].workers) == ("producer0", "producer1")
    assert subject.population.absent == set()


@pytest.mark.parametrize(
    ("faults", "restarted", "found"),
    [
        ([kill("1s", "broker", **{"for": "3s"}), kill("2s", "broker")], False, "kill of broker"),
        ([kill("1s", "producer1"), kill("2s", "producer1")], False, "kill of producer1"),
        ([kill("1s", "producer1"), kill("2s", "producer1")], True, ""),
        ([kill("1s", "broker", **{"for": "3s"}), kill("4s", "broker")], False, ""),
    ],
)
def test_absent_nodes_get_no_faults(
    faults: list[dict[str, Any]], restarted: bool, found: str
) -> None:
    """A node that is restarted at once, or is back, may be killed again."""
    plans = FAULTS.validate_python(faults)
    wrong = contradictions(plans, CLASSES, seed=0, others=FEEDERS, restarted=restarted)
    assert [text for _, text in wrong] == ([f"{found}, which is absent"] if found else [])


class Refusing:
    """An actuator that refuses every call."""

    def begin(self, fault: TimedFault, target: int) -> None:
        raise NodeError("it does not answer.")


def test_a_failed_action_names_the_fault_and_the_worker() -> None:
    subject = timeline({"leave": {"at": {"time": "1s"}, "workers": ("w2",)}})
    (action,) = subject.due(1.0)
    with pytest.raises(NodeError) as failed:
        subject.carry_out(action, Refusing(), clock=lambda: 1.0)  # type: ignore[arg-type]
    assert str(failed.value) == "faults.0 cannot be applied: leave of w2: it does not answer."
    assert failed.value.exit_code == 5


class LostHost:
    """An actuator of which the second worker's host is lost."""

    def begin(self, fault: TimedFault, target: int) -> None:
        if target == 1:
            raise HostLostError("host b is lost.")


def test_workers_of_a_lost_host_are_passed_over() -> None:
    subject = timeline({"leave": {"at": {"time": "1s"}, "workers": ("w1", "w2")}})
    (action,) = subject.due(1.0)
    applied = subject.carry_out(action, LostHost(), clock=lambda: 1.0)  # type: ignore[arg-type]
    assert (applied.nodes, applied.passed_over) == (("w2",), ("w1",))


def test_a_crash_is_drawn_once_per_push_from_the_workers_own_generator() -> None:
    subject = timeline({"crash": {"after_push": 0.3, "workers": ("w1", "w2")}}, seed=5)
    draw = crashes(subject, seed=5)
    found = [[draw(worker) for worker in (0, 1, 2)] for _ in range(50)]
    expected = {worker: stream(5, f"w{worker}", "crash") for worker in (1, 2)}
    for row in found:
        assert row == [False, *(expected[worker].random() < 0.3 for worker in (1, 2))]


@pytest.mark.parametrize(
    ("faults", "place"),
    [
        ([freeze("1s"), freeze("2s")], 1),
        ([freeze("1s", **{"for": "2s"}), freeze("2s")], 1),
        ([freeze("1s", **{"for": "2s", "every": "10s"}), freeze("12s")], 1),
        ([{"join": {"at": {"time": "1s"}, "workers": ("w1",)}}] * 2, 1),
        ([held("partition", "1s", "4s"), held("partition", "3s", "4s")], 1),
        ([held("slow", "1s", "4s", factor=2.0), held("slow", "3s", "1s", factor=3.0)], 1),
        ([held("link", "1s", "4s", up=FAST), held("link", "3s", "1s", down=FAST)], 1),
        ([{"kill": {"at": {"time": "1s"}}}, held("slow", "3s", "1s", factor=3.0)], 1),
        ([{"join": {"at": {"time": "1s"}}}], 0),
        ([{"crash": {"after_push": 0.1}}, {"crash": {"after_push": 0.2, "workers": ("w9",)}}], 1),
    ],
)
def test_faults_that_contradict_each_other(faults: list[dict[str, Any]], place: int) -> None:
    found = list(contradictions(FAULTS.validate_python(faults), CLASSES, seed=0))
    assert [at for at, _ in found] == [place]


def test_faults_that_do_not_contradict_each_other() -> None:
    faults = [
        freeze("1s", **{"for": "1s"}),
        freeze("2s", **{"for": "1s"}),
        held("partition", "1s", "2s"),  # also of a frozen worker
        held("link", "1s", "1s", up=FAST),
        held("link", "2s", "1s", down=FAST),
        held("slow", "1s", "9s", factor=2.0),  # it ends with the worker
        {"kill": {"at": {"time": "2500ms"}, "workers": ("w3",)}},
        {"join": {"at": {"time": "4s"}, "workers": ("w3",)}},
        {"leave": {"at": {"version": 9}, "workers": ("w3",)}},
    ]
    assert list(contradictions(FAULTS.validate_python(faults), CLASSES, seed=0)) == []


def test_random_targets_exclude_ineligible_workers() -> None:
    """Nine of ten workers are frozen, so the tenth leaves, and only that one can join again."""
    freezes = {"freeze": {"at": {"time": "1s"}, "count": 9}}
    leaves = {"leave": {"at": {"time": "2s"}, "share": 1.0}}
    subject = timeline(freezes, leaves, {"join": {"at": {"time": "3s"}, "count": 10}})
    frozen = subject.targets[0]
    (alone,) = set(range(10)) - set(frozen)
    first, second, third = subject.due(9.0)
    assert (first.workers, first.passed_over) == (frozen, ())
    assert (second.workers, second.passed_over) == ((alone,), frozen)
    assert (third.workers, third.passed_over) == ((alone,), frozen)


def test_random_targets_never_contradict_with_any_seed() -> None:
    drawn = [
        {"freeze": {"at": {"time": "1s"}, "share": 0.5, "for": "1s", "every": "3s"}},
        *({kind: {"at": {"time": "2s"}, "share": 0.5}} for kind in ("kill", "leave", "freeze")),
        {"join": {"at": {"time": "5s"}, "count": 2}},
        *({"crash": {"after_push": one, "share": 0.5}} for one in (0.1, 0.2)),
    ]
    faults = FAULTS.validate_python(drawn)
    for seed in range(50):
        assert list(contradictions(faults, CLASSES, seed=seed)) == []


def test_a_worker_drawn_for_two_crashes_has_the_first() -> None:
    subject = timeline(*({"crash": {"after_push": one, "count": 10}} for one in (1.0, 0.0)))
    draw = crashes(subject, seed=0)
    assert [draw(worker) for worker in range(10)] == [True] * 10


def test_the_next_change_of_pace_is_the_next_known_one() -> None:
    """From 2 to 3 s and again from 7; the one at a version is not known in advance."""
    waiting = {"slow": {"at": {"version": 5}, "workers": ("w1",), "factor": 2.0}}
    subject = timeline(held("slow", "2s", "1s", factor=2.0, every="5s"), freeze("1s"), waiting)
    assert (subject.next_time, subject.next_pace) == (1.0, 2.0)
    list(subject.due(2.0))
    assert subject.next_pace == 3.0
    list(subject.due(3.0))
    assert subject.next_pace == 7.0
    subject.reached(5, now=4.0)
    assert subject.next_pace == 4.0
