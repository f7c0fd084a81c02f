from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

import pytest
from rich.console import Console

from testbed.reports.frames import Run
from testbed.reports.table import (
    describe_algorithm,
    describe_bytes,
    describe_ending,
    describe_think,
    summary_table,
)
from testbed.telemetry.folder import RunFolder


def printed(summary: Mapping[str, Any]) -> str:
    text = io.StringIO()
    Console(file=text, width=160).print(summary_table(summary))
    return text.getvalue()


def test_the_table_of_the_small_run(folder: RunFolder) -> None:
    text = printed(Run(folder.path).summary)
    for expected in (
        "tiny: tiny-1",
        "NOT VALID",
        "(5% is allowed)",
        "finished: 6 updates applied",
        "6, 1.5/s",
        "fast 4, slow 2",
        "final 0.6250, best 0.7500 (",
        "payload 6.2 KB, tcp 6.7 KB, wire 10 KB, retransmitted 40 B",
        "mean 2.00, max 4, step scale 0.8333",
        "12.0 MiB",
        "up 2.5 s, training 2.0 s, down 0.5 s, 4.0 s emulated (time scale 2)",
    ):
        assert expected in text


def test_a_mean_of_ten_is_shown_from_ten_values(folder: RunFolder) -> None:
    summary = Run(folder.path).summary
    assert "mean of ten" not in printed(summary)
    accuracy = {**summary["accuracy"], "best_moving_average": 0.7}
    ten = {**summary, "accuracy": accuracy, "evaluations": 11, "missed_evaluations": 0}
    assert "best 0.7500, best mean of ten 0.7000 (11 evaluations)" in printed(ten)
    assert "0.7000 (11 evaluations, 2 missed)" in printed({**ten, "missed_evaluations": 2})


def test_what_became_of_the_samples_of_streams_is_shown(folder: RunFolder) -> None:
    summary = Run(folder.path).summary
    assert "samples:" not in printed(summary)
    counts = {"produced": 1200, "used": 900, "buffered": 0, "truncated": 300, "duplicates": 0}
    streams = {f"{name}_samples": count for name, count in counts.items()}
    shown = "samples: 1,200 came, 900 used, 0 waiting, 300 discarded"
    known = {**summary, "streams": {**streams, "wait_seconds_mean": 0.6839, "missing_samples": 7}}
    assert f"{shown}, 7 missing; a step waited 0.684 s for them" in printed(known)
    older = {**summary, "streams": {**streams, "duplicates_samples": 2, "wait_seconds_mean": None}}
    assert f"{shown}, 2 twice; a step waited not measured" in printed(older)


def test_a_valid_run(folder: RunFolder) -> None:
    verdict = {"valid": True, "reasons": [], "unchecked": ["the links' qdiscs"], "warnings": []}
    text = printed({**Run(folder.path).summary, "verdict": verdict})
    assert "valid" in text
    assert "NOT VALID" not in text
    assert "not measured: the links' qdiscs" in text
    assert "The host was" not in text
    verdict["warnings"] = ["The host was busy."]
    assert "The host was busy." in printed({**Run(folder.path).summary, "verdict": verdict})


@pytest.mark.parametrize(
    ("summary", "sentence"),
    [
        (("finished", "3 updates", "native"), "finished: 3 updates"),
        (("failed", "w1 did not join", "native"), "FAILED: w1 did not join"),
        (("interrupted", "", "native"), "INTERRUPTED"),
        (("training", "", "native"), "NOT FINISHED (last state: training)"),
        (("finished", "", "simulated"), "SIMULATED on a virtual clock; finished"),
    ],
)
def test_a_failure_does_not_hide_measures(summary: tuple[str, str, str], sentence: str) -> None:
    state, reason, runtime = summary
    assert describe_ending({"state": state, "reason": reason, "runtime": runtime}) == sentence


def test_wording() -> None:
    assert describe_bytes(None) == "not measured"
    assert describe_bytes(999) == "999 B"
    assert describe_bytes(1_234_567) == "1.235 MB"
    assert describe_bytes(460e9) == "460 GB"
    assert describe_bytes(-68_120_360) == "-68.12 MB"  # the end of an interval of a difference
    assert describe_algorithm({"name": "asgd"}) == "asgd"
    assert describe_algorithm({"name": "a", "learning_rate": 0.1}) == "a (learning rate 0.1)"
    nested = {"name": "a", "optimizer": {"name": "adam", "beta1": 0.9}, "rounds": {"late": "drop"}}
    assert describe_algorithm(nested) == "a (optimizer adam (beta1 0.9), rounds (late drop))"
    assert describe_think({"think": None, "think_by_class": {}}) == "no think time"
    uniform = {"law": "uniform(0.5,1.5)", "mean_seconds": 0.99}
    assert (
        describe_think({"think": uniform, "think_by_class": {}})
        == "think uniform(0.5,1.5) x 0.99 s"
    )
    slow = {"slow": {"law": "exponential", "mean_seconds": 100.0}}
    summary = {"think": uniform, "think_by_class": slow}
    assert describe_think(summary) == "think uniform(0.5,1.5) x 0.99 s, slow exponential x 100 s"
