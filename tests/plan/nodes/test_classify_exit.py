"""The meaning of a node's exit, by its role, its status and the phase of the run."""

from __future__ import annotations

from dataclasses import replace

import pytest

from testbed.plan.make import plan
from testbed.plan.nodes.base import classify_exit
from testbed.scenario import load_text
from testbed.telemetry.event import Event
from testbed.telemetry.ps_events import Finished, Listening, Started
from testbed.values.topology import Ending

TEXT = """\
name: ended
algorithm: asgd
model: digits-cnn
dataset: digits
workers: {count: 1}
programs: {aside: {command: [sleep, "1"]}}
stop: {updates: 1}
"""
PS, EVALUATOR, PROGRAM, WORKER = plan(load_text(TEXT), "r1").nodes
BEFORE: set[type[Event]] = {Listening}
TRAINING = {*BEFORE, Started}
OVER = {*TRAINING, Finished}


@pytest.mark.parametrize(
    ("node", "status", "seen", "means"),
    [
        (PS, 0, TRAINING, "fatal"),
        (PS, 0, OVER, "expected"),
        (PS, 1, OVER, "fatal"),
        (EVALUATOR, -9, TRAINING, "fatal"),
        (WORKER, 1, BEFORE, "fatal"),
        (WORKER, 0, TRAINING, "noticed"),
        (WORKER, -9, OVER, "noticed"),
        (WORKER, 0, OVER, "expected"),
        (replace(PROGRAM, end="expected"), 0, BEFORE, "expected"),
        (replace(PROGRAM, end="expected"), 1, BEFORE, "noticed"),
        (replace(PROGRAM, end="expected"), 1, TRAINING, "noticed"),
        (replace(PROGRAM, end="noticed"), 0, BEFORE, "noticed"),
        (replace(PROGRAM, end="noticed"), -9, BEFORE, "noticed"),
        (PROGRAM, 0, BEFORE, "fatal"),
        (replace(WORKER, end="restarted"), -9, BEFORE, "restarted"),
        (replace(WORKER, end="restarted"), -9, TRAINING, "restarted"),
        (
            replace(WORKER, end="restarted"),
            0,
            TRAINING,
            "restarted",
        ),  # SIGTERM, to one of our roles
        (replace(WORKER, end="restarted"), 143, TRAINING, "restarted"),  # and to Java
        (replace(WORKER, end="restarted"), 0, OVER, "expected"),
        (replace(WORKER, end="restarted"), 1, TRAINING, "fatal"),
    ],
)
def test_classify_exit(node: object, status: int, seen: set[type[Event]], means: Ending) -> None:
    assert classify_exit(node, status, seen=seen) == means  # type: ignore[arg-type]
