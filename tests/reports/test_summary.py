from __future__ import annotations

import json
import shutil
from collections.abc import Callable

import pytest

from testbed.reports.frames import Run
from testbed.telemetry.event_kinds import Exited, StateChanged
from testbed.telemetry.folder import RunFolder
from testbed.telemetry.record import Recorder


def test_every_number_of_the_small_run(folder: RunFolder) -> None:
    summary = Run(folder.path).write_summary()
    assert summary["format"] == 1
    assert summary["run"] == "tiny-1"
    assert summary["scenario"] == "tiny"
    assert summary["runtime"] == "native"
    assert summary["algorithm"]["name"] == "adacomp"
    assert summary["think"] == {"law": "uniform(0.5,1.5)", "mean_seconds": 0.1}
    assert summary["state"] == "finished"
    assert summary["reason"] == "6 updates applied"
    assert summary["started"] == "2023-11-14T22:13:20.000Z"
    assert summary["ended"] == "2023-11-14T22:13:23.000Z"
    assert summary["real_seconds"] == 2.0
    assert summary["emulated_seconds"] == 4.0
    assert summary["time_scale"] == 2.0
    assert summary["bring_up_seconds"] == 2.5
    assert summary["tear_down_seconds"] == 0.5
    assert summary["updates"] == {
        "total": 6,
        "per_second": 1.5,
        "per_real_second": 3.0,
        "by_class": {"fast": 4, "slow": 2},
        "rejected": 0,
    }
    assert summary["evaluations"] == 4
    assert summary["accuracy"] == {
        "best": 0.75,
        "final": 0.625,
        "last": 0.625,
        "best_moving_average": None,
    }
    assert summary["loss"] == {"lowest": 0.25, "final": 0.375, "last": 0.375}
    assert summary["lateness"] == {
        "late_steps": 2,  # of the four fast steps
        "late_steps_ratio": 0.5,
        "late_requests_ratio": None,
        "pace_excess_ratio": -1.0,
        "largest_gap_seconds": None,
    }
    # Pushes of worker 0 are 1.5 s apart, of worker 1 two; there was no thinking.
    assert summary["cycle"] == {
        "mean_seconds": 1.75,
        "deviation_ratio": 0.0,
        "think_ratio": 0.0,
        "unexplained_ratio": None,
        "overslept_ratio": None,
    }
    assert summary["memory"] == {"worker_private_bytes_median": 12 * 2**20}


def test_staleness_of_the_small_run(folder: RunFolder) -> None:
    staleness = Run(folder.path).summary["staleness"]
    assert staleness["mean"] == 2.0
    assert staleness["max"] == 4
    assert staleness["sigma_mean"] == 1.0
    assert staleness["mean_step_scale"] == pytest.approx(5 / 6)
    # 1, 1, 1/2, 1/2, 1/3, 1/4
    assert staleness["mean_global_step_scale"] == pytest.approx((43 / 12) / 6)


def test_payload_per_emulated_second(folder: RunFolder) -> None:
    """6,200 and 18,000 bytes in 4 s."""
    rates = Run(folder.path).summary["payload_per_second"]
    assert rates == {"ingress_bytes": 1550.0, "egress_bytes": 4500.0}


def test_ingress_and_egress_in_three_numbers(folder: RunFolder) -> None:
    summary = Run(folder.path).summary
    assert summary["ingress"] == {
        "payload_bytes": 6200,
        "tcp_bytes": 6700,
        "wire_bytes": 10_000,
        "retransmitted_bytes": 40,
        "reconciliation": {"expected_wire_bytes": 6700 + 66 * 50, "difference_ratio": 0.0},
    }
    assert summary["egress"] == {
        "payload_bytes": 18_000,
        "tcp_bytes": 20_000,
        "wire_bytes": 20_760,
        "retransmitted_bytes": 100,
        "reconciliation": {"expected_wire_bytes": 20_100 + 66 * 10, "difference_ratio": 0.0},
    }


def test_host_busyness_is_weighted_by_time_and_ends_with_the_training(folder: RunFolder) -> None:
    # 1 s at 0.95, then 2 s at 0.5 of which only the first belongs to the training
    assert Run(folder.path).summary["host"] == {
        "busy_ratio": {
            "mean": pytest.approx(0.725),
            "max": 0.95,
            "share_above_limit": pytest.approx(0.5),
        },
        "pressure_ratio": None,
        "available_bytes_min": 2 * 2**30,
    }


def test_the_verdict_names_measured_and_allowed_values(folder: RunFolder) -> None:
    verdict = Run(folder.path).summary["verdict"]
    assert verdict == {
        "valid": False,
        "reasons": [
            "50.00% of the training steps took longer than the step time that the `speed` of their "
            "class sets (5% is allowed). Set a longer time in workers.classes.fast.speed, lower "
            "time_scale, or use fewer workers.",
        ],
        "unchecked": ["gaps in the nodes' execution"],
        "warnings": [
            "The host was more than 90% busy during 50.00% of the run. This alone does not make "
            "the run invalid: delays that it caused would be separate reasons.",
        ],
    }


def test_a_stalled_training_is_not_valid(folder: RunFolder) -> None:
    said = {"reason": "stalled: 3 workers wait for w3", "stalled": True}
    lines = [json.loads(line) for line in folder.events.read_text().splitlines()]
    lines = [line | (said if line["event"] == "finished" else {}) for line in lines]
    folder.events.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    reasons = Run(folder.path).summary["verdict"]["reasons"]
    assert reasons[0].startswith("The training stalled: 3 workers wait for w3. ")


def test_payload_beyond_tcp_is_detected(make_run: Callable[..., RunFolder]) -> None:
    folder = make_run(tcp_received_bytes=6199, wire_rx_bytes=6199 + 3300)
    reasons = Run(folder.path).summary["verdict"]["reasons"]
    assert (
        "ingress of the parameter server: the updates have 6,200 payload bytes, more than the "
        "6,199 bytes that the sockets carried. One of these counts is wrong: run the scenario "
        "again."
    ) in reasons


def test_a_run_that_failed_at_once_has_no_measures(folder: RunFolder) -> None:
    shutil.rmtree(folder.updates)
    folder.updates.mkdir()
    for path in (folder.events, folder.evaluations, folder.traffic):
        path.unlink()
    with Recorder.into(folder, time_scale=2.0) as recorder:
        recorder.event(Exited("w2", -9))
        recorder.event(StateChanged("failed", "w2 did not join"))
    summary = Run(folder.path).write_summary()
    assert summary["updates"] == {
        "total": 0,
        "per_second": None,
        "per_real_second": None,
        "by_class": {"fast": 0, "slow": 0},
        "rejected": 0,
    }
    assert set(summary["accuracy"].values()) == {None}
    assert summary["ingress"]["tcp_bytes"] is None
    assert summary["ingress"]["reconciliation"]["difference_ratio"] is None
    assert set(summary["staleness"].values()) == {None}
    assert set(summary["lateness"].values()) == {None}
    assert summary["host"]["busy_ratio"]["mean"] is None
    assert summary["bring_up_seconds"] is None
    assert summary["verdict"]["reasons"] == [
        "The run failed: w2 did not join. Fix the cause, and run the scenario again.",
        "w2 was lost before the end: killed by signal 9. Check its output: logs/w2.log.",
    ]
    assert len(summary["verdict"]["unchecked"]) == 4


def test_the_file_equals_the_returned_summary(folder: RunFolder) -> None:
    summary = Run(folder.path).write_summary()
    assert json.loads(folder.summary.read_text()) == summary
    assert Run(folder.path).summary == summary
