"""The samples of a run: numbers worked out by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

import pytest

from testbed.faults import Fault
from testbed.reports.metrics.outline import Outline
from testbed.reports.metrics.reading import MetricsSink
from testbed.telemetry.entry import Entry
from testbed.telemetry.event import Event
from testbed.telemetry.event_kinds import (
    Exited,
    FaultApplied,
    LinkChanged,
    RateMeasured,
    RoundTripMeasured,
    StateChanged,
)
from testbed.telemetry.ps_events import (
    Evaluated,
    Finished,
    Joined,
    Left,
    Load,
    Omitted,
    Rejected,
    Restored,
)
from testbed.telemetry.rows import Rows, TrafficRow
from testbed.values.usage import ContainerUse, Queue, Usage

Values = Callable[[Any], dict[str, dict[tuple[str, ...], float]]]
Make = Callable[..., Rows]


def tell(sink: MetricsSink, *events: Event) -> None:
    for event in events:
        sink.event(Entry(0.0, 1.0, event))


def updates(rows: Make) -> Rows:
    """w0 with staleness 0 and 3, w1 late by 1 s with staleness 1, w2 late and without a speed."""
    return rows(
        {"worker": 0, "time_seconds": 1.0, "payload_up_bytes": 10, "payload_down_bytes": 100},
        {"worker": 1, "time_seconds": 2.0, "staleness": 1, "late_seconds": 1.0},
        {"worker": 2, "time_seconds": 3.0, "late_seconds": 1.0, "payload_up_bytes": 30},
        {
            **{"worker": 0, "time_seconds": 4.0, "staleness": 3, "payload_up_bytes": 20},
            **{"version_applied": 3, "compute_seconds": 0.5, "blocked_seconds": 0.25},
        },
    )


def test_updates_by_class_and_worker(outline: Outline, rows: Make, values: Values) -> None:
    sink = MetricsSink(outline)
    sink.updates(updates(rows), now=0.0)
    sink.time_passed(10.0)
    found = values(sink.collect())
    assert found["testbed_updates_total"] == {("fast",): 3, ("slow",): 1}
    assert found["testbed_version"] == {(): 4}
    assert found["testbed_late_steps_total"] == {("fast",): 1, ("slow",): 0}
    payload = found["testbed_payload_bytes_total"]
    assert payload["up", "fast"] == 30  # 10 + 20
    assert payload["up", "slow"] == 30
    assert payload["down", "fast"] == 100
    assert found["testbed_worker_updates_total"]["w0", "fast"] == 2
    assert found["testbed_worker_push_age_seconds"] == {  # 10 less 4, 2 and 3
        **{("w0", "fast"): 6.0, ("w1", "fast"): 8.0, ("w2", "slow"): 7.0},
    }
    assert found["testbed_worker_cycle_seconds_total"]["w0", "fast", "compute"] == 0.5
    assert found["testbed_worker_cycle_seconds_total"]["w0", "fast", "blocked"] == 0.25
    assert found["testbed_progress_ratio"] == {(): 0.5}  # 4 of 8 updates


def test_the_histogram_of_staleness(outline: Outline, rows: Make, values: Values) -> None:
    sink = MetricsSink(outline)
    sink.updates(updates(rows), now=0.0)
    found = values(sink.collect())
    buckets = found["testbed_staleness_updates_bucket"]
    # Of the fast: 0, 1 and 3, which lies in the bucket up to 4.
    assert [buckets["fast", end] for end in ("0.0", "1.0", "2.0", "4.0", "+Inf")] == [1, 2, 2, 3, 3]
    assert found["testbed_staleness_updates_count"] == {("fast",): 3, ("slow",): 1}
    assert found["testbed_staleness_updates_sum"] == {("fast",): 4, ("slow",): 0}


def test_a_restored_server_counts_the_remaining_updates(
    outline: Outline, rows: Make, values: Values
) -> None:
    told = updates(rows)
    sink = MetricsSink(outline, record=lambda: told)
    sink.updates(told, now=0.0)
    tell(sink, Restored(2, 5.0, 2))
    assert values(sink.collect())["testbed_updates_total"] == {("fast",): 2, ("slow",): 0}


def test_the_states_of_workers(outline: Outline, values: Values) -> None:
    sink = MetricsSink(outline)
    tell(sink, Joined("w0"), Joined("w1"), Load(1, 0.5))
    states = values(sink.collect())["testbed_workers"]
    assert states["running",] == 1  # two have joined, one request waits
    assert states["waiting",] == 1
    assert states["absent",] == 1
    tell(sink, FaultApplied("freeze", True, ("w0",), 2.0, 2.5), Exited("w1", -9), Joined("w2"))
    assert values(sink.collect())["testbed_worker_state"] == {
        **{("w0", "fast"): 2, ("w1", "fast"): 3, ("w2", "slow"): 1},
    }
    tell(sink, FaultApplied("freeze", False, ("w0",), 4.0, 4.0), Left("w2"), Finished("done", 8))
    tell(sink, Left("w0"))  # after the end every worker leaves
    states = values(sink.collect())["testbed_workers"]
    assert (states["running",], states["lost",], states["left",]) == (1, 1, 1)


def test_faults_planned_and_actual(outline: Outline, values: Values) -> None:
    sink = MetricsSink(outline)
    tell(sink, FaultApplied("freeze", True, ("w0", "w1"), 2.0, 2.5))
    found = values(sink.collect())
    union, *_ = get_args(Fault)
    kinds = {kind.model_fields["name"].annotation for kind in get_args(union)}
    others = dict.fromkeys({get_args(kind) for kind in kinds} - {("freeze",)}, 0)
    assert len(others) == 7
    assert found["testbed_faults_total"] == {("freeze",): 2, **others}
    assert found["testbed_faults_active"] == {("freeze",): 2, **others}
    assert found["testbed_fault_planned_seconds"] == {("freeze",): 2.0}
    assert found["testbed_fault_actual_seconds"] == {("freeze",): 2.5}
    tell(sink, FaultApplied("freeze", False, ("w0", "w1"), 4.0, 4.0))
    assert values(sink.collect())["testbed_faults_active"] == {("freeze",): 0, **others}


def test_the_verdicts_reasons_so_far(outline: Outline, rows: Make, values: Values) -> None:
    sink = MetricsSink(outline)
    reasons = values(sink.collect())["testbed_verdict_reasons"]
    assert set(reasons.values()) == {0}
    tell(
        sink,
        RateMeasured("class fast up", 8e6, 4e6),  # half of what was configured
        Rejected("w1", "NaN", code="INVALID_ARGUMENT"),
        # 3 emulated seconds late are 1.5 real seconds, and one is allowed
        FaultApplied("leave", True, ("w0",), 2.0, 5.0),
    )
    sink.updates(updates(rows), now=0.0)  # a third of the fast steps is late
    reasons = values(sink.collect())["testbed_verdict_reasons"]
    assert reasons["links",] == 1
    assert reasons["nodes",] == 2
    assert reasons["lateness",] == 1


def test_refused_calls_evaluations_and_state(outline: Outline, values: Values) -> None:
    sink = MetricsSink(outline)
    assert values(sink.collect())["testbed_rejected_total"] == {("INVALID_ARGUMENT",): 0}
    rejected = Rejected("w1", "NaN", code="INVALID_ARGUMENT")
    tell(sink, rejected, rejected, Omitted("w1", "rejected", 5), Omitted("w1", "gap", 9))
    metrics = {"top1": 0.75, "top5": 0.9, "auroc": None, "perplexity": 3.5}
    tell(sink, Evaluated(1.0, 4, 60, 0.5, metrics, 100, False), StateChanged("training"))
    found = values(sink.collect())
    assert found["testbed_rejected_total"] == {("INVALID_ARGUMENT",): 2, ("OMITTED",): 5}
    assert found["testbed_accuracy_ratio"] == {("1",): 0.75, ("5",): 0.9}
    evaluated = {("top1",): 0.75, ("top5",): 0.9, ("perplexity",): 3.5}
    assert found["testbed_evaluation_metric"] == evaluated
    assert found["testbed_loss"] == {(): 0.5}
    assert found["testbed_run_state"] == {("training",): 1}


def test_links_and_containers(outline: Outline, values: Values) -> None:
    sink = MetricsSink(outline)
    changed = LinkChanged("set", ("w0",), None, None, 0.0, 0.0)
    tell(sink, RateMeasured("class fast up", 8e6, 7.6e6), changed)
    tell(sink, RoundTripMeasured("class slow", 0.02, 0.021))
    sink.readings(
        [TrafficRow(1.0, 0.5, 3, 900, 9, 800, 8, 500, 5, 400, 4, 30, 20, 0.5, 2**30, None)]
    )
    sink.usage(
        Usage(
            round_trips={"w0": 0.01, "w1": 0.03, "w2": 0.5},
            down={"w0": Queue(1, 100), "w1": Queue(2, 50), "ps": Queue(0, 7)},
            up={"ps": Queue(4, 0)},
            containers={"w0": ContainerUse(1.5, 4096), "ps": ContainerUse(None, 2**20)},
        )
    )
    found = values(sink.collect())
    assert found["testbed_link_probed_bytes_per_second"] == {("up", "fast"): 950_000}  # 7.6e6 / 8
    assert found["testbed_link_probed_round_trip_seconds"] == {("slow",): 0.021}
    assert found["testbed_link_round_trip_seconds"] == {("fast",): 0.02, ("slow",): 0.5}
    assert found["testbed_link_dropped_packets_total"] == {
        **{("down", "fast"): 3, ("down", "ps"): 0, ("up", "ps"): 4},
    }
    assert found["testbed_link_backlog_bytes"]["down", "fast"] == 150
    assert found["testbed_link_changes_total"] == {(): 1}
    assert found["testbed_wire_bytes_total"] == {("up",): 900, ("down",): 800}
    assert found["testbed_tcp_bytes_total"] == {("up",): 500, ("down",): 400}
    assert found["testbed_retransmitted_bytes_total"] == {("up",): 30, ("down",): 20}
    assert found["testbed_host_cpu_busy_ratio"] == {(): 0.5}
    assert "testbed_host_cpu_pressure_ratio" not in found  # unknown values are omitted
    assert found["testbed_container_cpu_seconds_total"] == {("w0", "fast"): 1.5}
    assert found["testbed_container_memory_bytes"] == {("w0", "fast"): 4096, ("ps", "ps"): 2**20}
    sink.usage(Usage(down={"w1": Queue(5, 0)}))  # counters of ended nodes remain
    found = values(sink.collect())
    assert found["testbed_link_dropped_packets_total"]["down", "fast"] == 1 + 5
    assert found["testbed_link_backlog_bytes"]["down", "fast"] == 0
    assert found["testbed_container_cpu_seconds_total"] == {("w0", "fast"): 1.5}
    assert "testbed_container_memory_bytes" not in found


def test_the_cost_of_scrapes_is_counted(outline: Outline, rows: Make, values: Values) -> None:
    ticks = iter([1.0, 1.5, 7.0, 7.25])
    sink = MetricsSink(outline, seconds=lambda: next(ticks))
    sink.updates(updates(rows), now=0.0)
    with sink.spending():
        pass
    assert values(sink.collect())["testbed_exporter_cpu_seconds_total"] == {(): pytest.approx(0.75)}
