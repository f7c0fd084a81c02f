"""The controller of the worker processes reports an ended worker over the unix socket."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from testbed.algorithms.base import Update
from testbed.errors import RejectedError
from testbed.payloads import Sparse
from testbed.payloads.layout import Layout
from testbed.rpc import methods
from testbed.rpc._pb import ps_pb2
from testbed.rpc.codec import encode_push
from testbed.rpc.messages import PushMessage, Timing
from testbed.telemetry.events import read_events

LAYOUT = Layout(("weight",), ((10, 5),))


@pytest.fixture
def stage(begin: Callable[..., Any]) -> Any:
    """A started training with w0 and w1."""
    return begin(LAYOUT)


def removal(worker: int, reason: str = "killed") -> bytes:
    return ps_pb2.RemoveRequest(worker=worker, reason=reason).SerializeToString()


def manage(stage: Any, message: bytes) -> None:
    with stage.connect("controller") as connection:
        connection.call(methods.REMOVE, message)


def push(worker: int) -> bytes:
    """Its first push, of one entry."""
    payload = Sparse(np.array([3], np.int32), np.array([1], np.float32))
    update = Update(payload, version=0, samples=10)
    return encode_push(PushMessage(worker, 1, LAYOUT.fingerprint, update, Timing())).data


def events(folder: Path, *names: str) -> list[dict[str, Any]]:
    entries = read_events(folder / "events.jsonl")
    return [entry.as_dict() for entry in entries if entry.name in names]


def test_a_removal_is_recorded_once_with_its_reason(stage: Any, tmp_path: Path) -> None:
    for reason in ("w1 was ended by SIGKILL", "as if the answer had been lost"):
        manage(stage, removal(1, reason))
    (event,) = events(tmp_path, "left")
    assert (event["node"], event["reason"]) == ("w1", "w1 was ended by SIGKILL")


def test_a_push_in_transit_from_a_removed_worker_is_not_refused(stage: Any, tmp_path: Path) -> None:
    manage(stage, removal(1))
    aborted = pytest.raises(RejectedError, match=r"worker 1 was removed: .* \(ABORTED\)")
    with stage.connect("w1") as connection, aborted:
        connection.call(methods.EXCHANGE, push(1))
    with stage.connect("w0") as connection:
        connection.call(methods.EXCHANGE, push(0))
    assert stage.half.version == 1
    assert stage.counts()["ABORTED"] == 1
    assert events(tmp_path, "rejected", "incomplete") == []


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (removal(2), "worker 2: expected a number from 0 to 1 (FAILED_PRECONDITION)"),
        (
            removal(1, 1001 * "x"),
            "a reason of 1001 characters, expected at most 1000 (INVALID_ARGUMENT)",
        ),
        (b"\x12\x01\xff", "not a RemoveRequest"),  # a reason that is not text
    ],
)
def test_a_request_that_is_not_a_removal_is_refused(
    stage: Any, tmp_path: Path, message: bytes, reason: str
) -> None:
    with pytest.raises(RejectedError) as refusal:
        manage(stage, message)
    assert reason in str(refusal.value)
    assert events(tmp_path, "left") == []
    assert [event["method"] for event in events(tmp_path, "rejected")] == ["Remove"]


def test_a_worker_cannot_remove_another(stage: Any, tmp_path: Path) -> None:
    with stage.connect("w0") as connection, pytest.raises(RejectedError, match="UNIMPLEMENTED"):
        connection.call(methods.REMOVE, removal(1))
    assert events(tmp_path, "left") == []
