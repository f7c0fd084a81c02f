"""The evaluator's two calls, over the unix socket."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from testbed.errors import RejectedError
from testbed.payloads.layout import Layout
from testbed.rpc import methods
from testbed.rpc._pb import ps_pb2
from testbed.rpc.codec import decode_snapshot
from testbed.telemetry.entry import only
from testbed.telemetry.event_kinds import Evaluated, Rejected
from testbed.telemetry.events import read_events

LAYOUT = Layout(("weight",), ((10, 5),))


@pytest.fixture
def stage(begin: Callable[..., Any]) -> Any:
    """A started training."""
    return begin(LAYOUT)


def report(**changes: Any) -> bytes:
    """A report on the initial model; fields override its own."""
    values = {"version": 0, "loss": 2.5, "top1": 0.25, "top5": 0.5, "images": 40, "final": False}
    return ps_pb2.ReportRequest(**(values | changes)).SerializeToString()


def test_a_snapshot_is_taken_and_reported_once(stage: Any, tmp_path: Path) -> None:
    with stage.connect("evaluator") as connection:
        request = ps_pb2.SnapshotRequest().SerializeToString()
        snapshot = decode_snapshot(connection.call(methods.SNAPSHOT, request))
        assert (snapshot.version, snapshot.final) == (0, False)
        assert snapshot.model.values.tobytes() == stage.half.parameters.tobytes()
        said = report(loss=float("nan"), time_seconds=snapshot.time)
        for _ in range(2):  # the second repeats the first after a lost answer
            connection.call(methods.REPORT, said)
    (event,) = only(read_events(tmp_path / "events.jsonl"), Evaluated)
    assert event == Evaluated(
        time_seconds=pytest.approx(0, abs=1),
        version=0,
        payload_up_bytes=0,
        loss=None,  # the model has diverged
        top1=0.25,
        top5=0.5,
        images=40,
        final=False,
    )


def test_a_report_without_accuracies(stage: Any, tmp_path: Path) -> None:
    with stage.connect("evaluator") as connection:
        request = ps_pb2.SnapshotRequest().SerializeToString()
        snapshot = decode_snapshot(connection.call(methods.SNAPSHOT, request))
        said = report(top1=None, top5=None, time_seconds=snapshot.time)
        connection.call(methods.REPORT, said)
    (event,) = only(read_events(tmp_path / "events.jsonl"), Evaluated)
    assert (event.loss, event.top1, event.top5) == (2.5, None, None)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"version": 3}, "a report on a snapshot of version 3 at 0 s, which was not taken"),
        (
            {"time_seconds": 9.5},
            "a report on a snapshot of version 0 at 9.5 s, which was not taken",
        ),
        ({"final": True}, "a report on a final snapshot of version 0 at 0 s, which was not taken"),
        ({"top1": 1.5}, "expected ratios"),
        ({"top1": None}, "expected ratios"),
        ({"top5": None}, "expected ratios"),
        ({"top5": float("nan")}, "expected ratios"),
        ({"images": 0}, "0 images: out of range"),
        ({"version": 2**64 - 1}, "out of range"),
    ],
)
def test_impossible_reports_are_refused(
    stage: Any, tmp_path: Path, changes: dict[str, Any], reason: str
) -> None:
    with (
        stage.connect("evaluator") as connection,
        pytest.raises(RejectedError, match=reason),
    ):
        connection.call(methods.REPORT, report(**changes))
    events = read_events(tmp_path / "events.jsonl")
    assert [(e.node, e.method) for e in only(events, Rejected)] == [("evaluator", "Report")]


def test_workers_and_the_evaluator_have_separate_addresses(stage: Any) -> None:
    with stage.connect("w0") as connection, pytest.raises(RejectedError, match="UNIMPLEMENTED"):
        connection.call(methods.SNAPSHOT, b"")
    with (
        stage.connect("evaluator") as connection,
        pytest.raises(RejectedError, match="UNIMPLEMENTED"),
    ):
        connection.call(methods.LEAVE, b"")
