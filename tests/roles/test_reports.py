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
from testbed.telemetry.events import read_events
from testbed.telemetry.ps_events import Evaluated, Rejected

LAYOUT = Layout(("weight",), ((10, 5),))


@pytest.fixture
def stage(begin: Callable[..., Any]) -> Any:
    """A started training."""
    return begin(LAYOUT)


def report(**changes: Any) -> bytes:
    """A report on the initial model; fields override its own."""
    metrics = changes.pop("metrics", {"top1": 0.25, "f1": None})
    values = {"version": 0, "loss": 2.5, "images": 40, "final": False}
    values["metrics"] = [ps_pb2.Metric(name=name, value=one) for name, one in metrics.items()]
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
        metrics={"top1": 0.25, "f1": None},
        images=40,
        final=False,
    )


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"version": 3}, "a report on a snapshot of version 3 at 0 s, which was not taken"),
        (
            {"time_seconds": 9.5},
            "a report on a snapshot of version 0 at 9.5 s, which was not taken",
        ),
        ({"final": True}, "a report on a final snapshot of version 0 at 0 s, which was not taken"),
        ({"metrics": {"top1": float("nan")}}, "metric 'top1' nan: expected a name and a number"),
        ({"metrics": {"a,b": 1.0}}, "metric 'a,b' 1.0: expected a name and a number"),
        ({"metrics": {f"top{k}": 1.0 for k in range(2001)}}, "2001 metrics, expected at most 2000"),
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
