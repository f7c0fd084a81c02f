"""The evaluator's two calls, over the unix socket."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from testbed.compress.layout import Layout
from testbed.compress.payload import Dense
from testbed.errors import RejectedError
from testbed.roles.evaluator import Due
from testbed.rpc import methods
from testbed.rpc._pb import ps_pb2
from testbed.rpc.client import Connection
from testbed.rpc.codec import decode_snapshot
from testbed.rpc.messages import Snapshot
from testbed.scenario.schema import Evaluate
from testbed.telemetry.events import read_events
from testbed.units import Duration

LAYOUT = Layout(("weight",), ((10, 5),))


@pytest.fixture
def stage(begin: Callable[..., Any]) -> Any:
    """A training that has begun."""
    return begin(LAYOUT)


def report(**changes: Any) -> bytes:
    """A report on the initial model; fields replace its own."""
    values = {"version": 0, "loss": 2.5, "top1": 0.25, "top5": 0.5, "images": 40, "final": False}
    return ps_pb2.ReportRequest(**(values | changes)).SerializeToString()


def test_a_snapshot_is_taken_and_reported_on_once(stage: Any, tmp_path: Path) -> None:
    with Connection(f"unix:{stage.socket}", token=stage.token, limits=stage.limits) as connection:
        request = ps_pb2.SnapshotRequest().SerializeToString()
        snapshot = decode_snapshot(connection.call(methods.SNAPSHOT, request))
        assert (snapshot.version, snapshot.final) == (0, False)
        assert snapshot.model.values.tobytes() == stage.half.parameters.tobytes()
        for _ in range(2):  # the second as if the answer to the first had been lost
            connection.call(methods.REPORT, report(loss=float("nan")))
    (event,) = [e for e in read_events(tmp_path / "events.jsonl") if e["event"] == "evaluated"]
    del event["time"], event["elapsed_seconds"]
    assert event == {
        "event": "evaluated",
        "time_seconds": pytest.approx(0, abs=1),
        "version": 0,
        "loss": None,  # the model has diverged
        "top1": 0.25,
        "top5": 0.5,
        "images": 40,
        "final": False,
        "payload_up_bytes": 0,
    }


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"version": 3}, "a report on a snapshot of version 3, which was not taken"),
        ({"final": True}, "a report on a final snapshot of version 0, which was not taken"),
        ({"top1": 1.5}, "expected shares"),
        ({"top5": float("nan")}, "expected shares"),
        ({"images": 0}, "0 images: out of range"),
        ({"version": 2**64 - 1}, "out of range"),
    ],
)
def test_impossible_reports_are_refused(
    stage: Any, tmp_path: Path, changes: dict[str, Any], reason: str
) -> None:
    with (
        Connection(f"unix:{stage.socket}", token=stage.token, limits=stage.limits) as connection,
        pytest.raises(RejectedError, match=reason),
    ):
        connection.call(methods.REPORT, report(**changes))
    events = read_events(tmp_path / "events.jsonl")
    assert [(e["node"], e["method"]) for e in events if e["event"] == "rejected"] == [
        ("evaluator", "Report")
    ]


def test_workers_and_the_evaluator_have_their_own_address(stage: Any) -> None:
    with stage.connect() as connection, pytest.raises(RejectedError, match="UNIMPLEMENTED"):
        connection.call(methods.SNAPSHOT, b"")
    with (
        Connection(f"unix:{stage.socket}", token=stage.token, limits=stage.limits) as connection,
        pytest.raises(RejectedError, match="UNIMPLEMENTED"),
    ):
        connection.call(methods.LEAVE, b"")


@pytest.mark.parametrize(
    ("every", "version", "time", "due"),
    [
        (20, 0, 0.0, Due(version=20)),
        (20, 20, 1.0, Due(version=40)),
        (20, 59, 1.0, Due(version=60)),  # what was missed is not made up for
        (Duration(5), 7, 0.0, Due(time=5.0)),
        (Duration(5), 7, 12.5, Due(time=15.0)),
    ],
)
def test_when_the_next_snapshot_is_due(
    every: int | Duration, version: int, time: float, due: Due
) -> None:
    snapshot = Snapshot(version, time, final=False, model=Dense(np.zeros(1, np.float32)))
    assert Due.after(snapshot, Evaluate(every=every)) == due
