from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from testbed.reports import measures
from testbed.reports.history import RunHistory
from testbed.scenario import load_text
from testbed.telemetry.entry import Entry
from testbed.telemetry.event import Event
from testbed.telemetry.event_kinds import Exited, MemoryRead, StateChanged
from testbed.telemetry.ps_events import Done, Finished, Gap, Left, Rejected, Restored

EVERY_TEN = load_text(
    """\
name: any
algorithm: asgd
model: digits-cnn
dataset: digits
workers: {count: 2}
stop: {updates: 1000}
evaluate: {every: 10}
"""
)


def evaluations(*top1: float) -> pd.DataFrame:
    """Evaluations every 10 updates and 1 s, the last of which is the final one."""
    count = range(len(top1))
    table = {
        "top1": top1,
        "version": [10 * n for n in count],
        "time_seconds": [float(n) for n in count],
        "final": [n == len(top1) - 1 for n in count],
    }
    return pd.DataFrame(table)


def test_moving_average_of_ten() -> None:
    values = pd.Series([0.0] * 5 + [1.0] * 7)
    smooth = measures.moving_average(values)
    assert smooth.isna().sum() == 9
    assert list(smooth[9:]) == pytest.approx([0.5, 0.6, 0.7])


def test_the_final_evaluation_is_not_compared_with_those_during_the_training() -> None:
    found = measures.accuracy(evaluations(*[0.5] * 10, 1.0), EVERY_TEN)
    assert found == {"best": 0.5, "final": 1.0, "last": 1.0, "best_moving_average": 0.5}


def test_requested_evaluations_are_not_part_of_the_moving_average() -> None:
    """An evaluation every 5 updates, of which every 10 are due; ten of 20 have 0.25."""
    table = evaluations(*[0.25, 0.75] * 10, 0.5)
    table["version"] //= 2
    found = measures.accuracy(table, EVERY_TEN)
    assert found == {"best": 0.75, "final": 0.5, "last": 0.5, "best_moving_average": 0.25}


def test_without_a_final_evaluation_there_is_no_final_accuracy() -> None:
    table = evaluations(0.25, 0.5, 0.75)
    found = measures.accuracy(table[~table["final"]], EVERY_TEN)
    assert found["final"] is None
    assert found["last"] == 0.5


REJECTED = Rejected("w1", "a value is NaN or infinite")


def entries(*events: Event) -> list[Entry]:
    return [Entry(0.0, None, event) for event in events]


def test_a_lost_worker_is_named_once_with_the_best_known_reason() -> None:
    events = entries(
        Left("w0"),
        Exited("w0", -11),
        Left("w2"),
        Finished("6 updates applied", 6),
        Left("w3"),
    )
    assert RunHistory.of(events).lost() == [
        ("w0", "killed by signal 11"),
        ("w2", "its departure was noticed by the parameter server"),
    ]


def test_a_node_without_its_container_is_not_said_to_be_killed() -> None:
    history = RunHistory.of(
        entries(
            Exited("w0", -9, container_ended=True),
            Exited("ps", -9, restarted=True, container_ended=True),
            Restored(500, 1.0, 37),
        )
    )
    assert history.removed == {"w0", "ps"}
    assert history.lost() == [
        ("w0", "its container was stopped or removed"),
        (
            "ps",
            "its container was stopped or removed; it resumed from its checkpoint at update 500, "
            "and 37 updates were lost",
        ),
    ]


def test_a_rejected_worker_and_a_planned_end_are_not_losses() -> None:
    events = entries(REJECTED, Left("w1"), Exited("w1", 8), Exited("w2", -9, planned=True))
    assert RunHistory.of(events).lost() == []
    assert measures.rejected_pushes(events) == [("w1", "a value is NaN or infinite")]


def test_values_that_are_not_finite_mean_that_the_training_diverged() -> None:
    """The same for pushes and for the evaluator; other refusals still count."""
    other = Rejected("w3", "version 3 is from the future, the model is at 2")
    for reason in ("pushes of 2 of 3 workers are NaN or infinite", "loss is nan"):
        diverged = Finished(f"diverged: {reason} at version 2", 2)
        events = entries(REJECTED, Exited("w1", 8), other, diverged)
        assert measures.rejected_pushes(events) == [("w3", other.reason)]
        assert RunHistory.of(events).lost() == []
    events = entries(REJECTED, Exited("w1", 8), Finished("9 updates applied", 9))
    assert measures.rejected_pushes(events) == [("w1", REJECTED.reason)]


def test_a_call_without_the_token_is_not_counted_as_a_push() -> None:
    stranger = Rejected(None, "no valid token", "unix:", "Snapshot", "UNAUTHENTICATED")
    assert measures.rejected_pushes(entries(stranger, REJECTED)) == [("w1", REJECTED.reason)]


def test_nodes_that_end_during_the_tear_down_are_not_lost() -> None:
    events = entries(StateChanged("training"), StateChanged("interrupted"), Exited("w0", -9))
    assert RunHistory.of(events).lost() == []


def test_the_last_reading_of_the_memory_counts() -> None:
    events = entries(MemoryRead({"w0": 1, "w1": 1}), MemoryRead({"w0": 10, "w1": 20}))
    assert measures.private_bytes_median(events) == 15


def test_the_longest_unplanned_gap_of_each_node() -> None:
    events = entries(Gap("w1", 3.0), Gap("w1", 45.0), Gap("ps", 15.0), Gap("w2", 30.0))
    assert measures.gaps(events) == {"w1": 45.0, "ps": 15.0, "w2": 30.0}
    # A fault held w2 for 30 s, and another w1 for 42 s, which resumed 3 s after that.
    planned = {"w2": 30.0, "w1": 42.0}
    assert measures.gaps(events, planned=planned) == {"w1": 3.0, "ps": 15.0}


def test_the_largest_gap_is_known_where_it_was_measured() -> None:
    assert measures.largest_gap_seconds(entries(Done(evaluated=True))) is None
    done = Done(evaluated=True, largest_gap_seconds=0.25)
    assert measures.largest_gap_seconds(entries(done)) == 0.25
    assert measures.largest_gap_seconds(entries(Gap("w1", 3.0))) == 3.0


def updates(**columns: list[Any]) -> pd.DataFrame:
    count = len(next(iter(columns.values())))
    others = ("compute_seconds", "late_seconds", "think_seconds")
    zeros = {name: [0.0] * count for name in others}
    return pd.DataFrame({"steps": [1] * count, "samples": [10] * count, **zeros, **columns})


def test_cycles_vary_around_the_mean_of_their_worker() -> None:
    table = updates(
        worker=[0, 1, 0, 1, 0, 1],
        time_seconds=[1.0, 1.0, 2.0, 5.0, 5.0, 9.0],
        think_seconds=[9.0, 9.0, 0.5, 2.0, 1.5, 2.0],
    )
    # Cycles: 1 and 3 s of worker 0 (mean 2), 4 and 4 s of worker 1. Relative to the own mean 0.5,
    # 1.5, 1, 1: variance (0.25 + 0.25) / 4. Of 12 s, 6 were thought.
    assert measures.cycle(table) == {
        "mean_seconds": 3.0,
        "deviation_ratio": pytest.approx(0.125**0.5),
        "think_ratio": 0.5,
    }
    assert set(measures.cycle(table.iloc[:2]).values()) == {None}


SCENARIO = """\
name: paced
algorithm: asgd
model: digits-cnn
dataset: digits
workers:
  count: 2
  think: {law: constant, mean: 200ms}
  classes:
    fast: {share: 0.5, speed: 100ms}
    free: {share: 0.5}
stop: {updates: 6}
time_scale: 2.0
"""


def test_the_pace_compares_computing_and_thinking_in_real_seconds() -> None:
    table = updates(
        device_class=["fast", "fast", "free", "free"],
        compute_seconds=[0.1, 0.2, 9.0, 9.0],
        think_seconds=[0.2, 0.2, 0.4, 0.4],
    )
    # Drawn 0.3, 0.3, 0.2, 0.2 s, that is 0.25 on average; taken 0.3, 0.4, 0.4, 0.4, that is
    # 0.375; the class without a speed has no target. Thinking varies by 0.1.
    found = measures.pace(table, load_text(SCENARIO))
    assert found is not None
    assert found.asked_seconds == pytest.approx(0.125)
    assert found.measured_seconds == pytest.approx(0.1875)
    assert found.error_seconds == pytest.approx(0.1 / 2 / 2)
    assert found.excess_ratio == pytest.approx(0.5)


def test_without_thinking_only_classes_with_a_speed_have_a_pace() -> None:
    table = updates(
        device_class=["fast", "fast", "free"], compute_seconds=[0.1, 0.3, 9.0], steps=[1, 2, 1]
    )
    unthinking = SCENARIO.replace("  think: {law: constant, mean: 200ms}\n", "")
    found = measures.pace(table, load_text(unthinking))
    assert found is not None
    assert (found.asked_seconds, found.measured_seconds) == pytest.approx((0.075, 0.1))
    assert found.error_seconds == 0.0
    assert measures.pace(table, load_text(unthinking.replace(", speed: 100ms", ""))) is None
    assert measures.pace(table.assign(steps=0), load_text(unthinking)) is None  # no target time


def test_the_pace_of_a_speed_that_grows_with_the_batch() -> None:
    """(60 ms + 2 ms per sample) for 2 steps of 40 samples in total and 1 step of 10: 200 and 80."""
    table = updates(
        device_class=["fast", "fast", "free"],
        compute_seconds=[0.2, 0.1, 9.0],
        steps=[2, 1, 1],
        samples=[40, 10, 10],
    )
    text = SCENARIO.replace("speed: 100ms", "speed: {base: 60ms, each: 2ms}")
    found = measures.pace(
        table, load_text(text.replace("  think: {law: constant, mean: 200ms}\n", ""))
    )
    assert found is not None
    assert (found.asked_seconds, found.measured_seconds) == pytest.approx((0.07, 0.075))
    assert found.error_seconds == 0.0


def test_evaluations_by_workers_are_not_a_slower_pace() -> None:
    """Steps of 0.1 s and evaluations of 0.04; 0.01 of the second update is late."""
    text = SCENARIO.replace("  think: {law: constant, mean: 200ms}\n", "")
    text = text.replace("algorithm: asgd", "algorithm: fedavg")
    text = text.replace("dataset: digits", "dataset: {digits: {held_out: 0.2}}")
    text += "evaluate: {metrics: [top1, {clients: {by: workers}}]}\n"
    table = updates(
        device_class=["fast", "fast", "free"],
        compute_seconds=[0.14, 0.15, 9.0],
        late_seconds=[0.0, 0.01, 0.0],
    )
    found = measures.pace(table, load_text(text))
    assert found is not None
    assert (found.asked_seconds, found.measured_seconds) == pytest.approx((0.07, 0.0725))


def test_different_batches_with_a_speed_per_step() -> None:
    table = updates(
        device_class=["fast"] * 3 + ["free"] * 2, steps=[1, 1, 2, 1, 1], samples=[9, 10, 42, 1, 9]
    )
    assert measures.uneven_batches(table, load_text(SCENARIO)) == {"fast": (9.0, 21.0)}
    even = table.assign(samples=[9, 10, 36, 1, 9])  # 18 per step is twice 9
    assert measures.uneven_batches(even, load_text(SCENARIO)) == {}
    growing = SCENARIO.replace("speed: 100ms", "speed: {base: 60ms, each: 2ms}")
    assert measures.uneven_batches(table, load_text(growing)) == {}


def test_late_steps_of_the_classes_that_have_a_speed() -> None:
    table = updates(device_class=["fast", "fast", "free"], late_seconds=[0.0, 0.1, 0.1])
    late = measures.late_steps(table, load_text(SCENARIO))
    assert list(late.items()) == [("fast", False), ("fast", True)]


def test_pressure_is_weighted_by_time() -> None:
    table = pd.DataFrame(
        {"wall_seconds": [1.0, 4.0, 9.0], "host_pressure_ratio": [0.5, 0.1, 1.0]}, dtype="float64"
    )
    assert measures.pressure(table, 4.0) == pytest.approx((1 * 0.5 + 3 * 0.1) / 4)
    assert measures.pressure(table, None) is None


def readings(*rows: tuple[float | None, float | None]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=["wall_seconds", "host_busy_ratio"], dtype="float64")


def test_readings_before_the_training_and_without_a_share_do_not_count() -> None:
    found = measures.busyness(readings((None, 1.0), (1.0, None), (2.0, 0.5), (4.0, 0.8)), 4.0)
    assert found["mean"] == pytest.approx((2 * 0.5 + 2 * 0.8) / 4)
    assert found["max"] == 0.8
    assert found["share_above_limit"] == 0.0


def test_a_share_equal_to_the_limit_is_allowed() -> None:
    found = measures.busyness(readings((1.0, 0.9), (2.0, 0.91)), 2.0)
    assert found["share_above_limit"] == 0.5


def test_a_host_without_readings() -> None:
    for found in measures.busyness(readings(), 4.0), measures.busyness(readings((1.0, 0.5)), None):
        assert found == {"mean": None, "max": None, "share_above_limit": None}


def test_longer_headers_are_expected_where_they_were_counted() -> None:
    """20 of 50 packets with one block of SACK, 12 bytes; older folders lack the count."""
    none = pd.DataFrame({"wall_seconds": [], "payload_up_bytes": [], "payload_down_bytes": []})
    columns = ("wall_seconds", "wire_rx_bytes", "wire_rx_packets", "tcp_received_bytes")
    reading = dict(zip(columns, (1.0, 10_240, 50, 6_700), strict=True))
    reading |= dict.fromkeys(("wire_tx_bytes", "wire_tx_packets", "tcp_acked_bytes"), 100)
    reading |= {"retransmitted_in_bytes": 0, "retransmitted_out_bytes": 0}
    assert measures.flow(none, reading, side="in").expected_wire_bytes == 6_700 + 66 * 50
    reading["tcp_options_in_bytes"] = 20 * 12
    assert measures.flow(none, reading, side="in").expected_wire_bytes == 10_240
    assert measures.flow(none, reading, side="out").expected_wire_bytes == 100 + 66 * 100
    table = pd.DataFrame([reading]).astype({"tcp_options_in_bytes": "Int64"})
    assert measures.last_reading(table) == reading
    table["tcp_options_in_bytes"] = pd.NA
    assert "tcp_options_in_bytes" not in (measures.last_reading(table) or {})
