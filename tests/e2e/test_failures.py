"""Nodes that fail or are killed are named and explained, and the run is torn down."""

from __future__ import annotations

import json
import os
import signal
from typing import Any

import pytest
from own_algorithms import SILENT

import testbed
from testbed.runtimes.native.lifeline import read_record
from testbed.telemetry.entry import only
from testbed.telemetry.event_kinds import Exited
from testbed.telemetry.events import read_events
from testbed.telemetry.ps_events import Drained, Left, Rejected

pytestmark = [pytest.mark.root, pytest.mark.slow]

ENDLESS = ("--set", "stop.updates=1000000", "--set", "workers.think.mean=10ms")

NETWORKS = """\
import socket, time, torch

class Net(torch.nn.Module):
    def __init__(self, image_shape, classes):
        super().__init__()
        self.score = torch.nn.Linear(64, classes)

    def forward(self, images):
        return self.score(images.flatten(1))

class Broken(Net):
    def forward(self, images):
        if socket.gethostname() == "w1":
            raise RuntimeError("the forward pass is broken")
        return super().forward(images)

class Nan(Net):
    def forward(self, images):
        return super().forward(images) * float("nan")

class OneNan(Net):
    steps = 0

    def forward(self, images):
        node = socket.gethostname()
        OneNan.steps += node in ("w0", "w2")
        if OneNan.steps > 75:
            time.sleep(1)
        return super().forward(images) * (float("nan") if node == "w1" else 1.0)
"""
"""Half of the updates is all that w0 and w2 of OneNan have to hurry for: each has its turn."""


def up_with(bed: Any, network: str) -> Any:
    (bed.path / "net.py").write_text(NETWORKS)
    return bed.up("--set", f"model={{name: custom, file: ./net.py, class: {network}}}")


def reasons(up: Any) -> list[str]:
    found: list[str] = json.loads(up.folder.summary.read_text())["verdict"]["reasons"]
    return found


def test_a_node_that_fails_during_the_start(bed: Any) -> None:
    up = up_with(bed, "Broken")
    done = up.end()
    assert done.status == 11
    first, *quoted_lines, quoted, hint = done.err.splitlines()
    assert first == "w1 exited with status 11; it printed:"
    assert "net.py:14: model:" in quoted
    assert any('raise RuntimeError("the forward pass is broken")' in line for line in quoted_lines)
    assert "the forward pass is broken" in quoted
    assert hint == f"  Full log: testbed logs {up.name} w1"
    assert "failed before any update" in done.out
    assert f"folder: {up.folder.path}" in done.out.splitlines()
    assert "verdict" not in done.out
    assert "the forward pass is broken" in bed.run("logs", up.name, "w1").out
    state = up.folder.state()
    assert state.state == "failed"
    assert state.reason == f"w1 exited with status 11; it printed: {quoted.strip()}"
    assert bed.remains(up.name) == []


def test_a_memory_limit_that_is_too_low(bed: Any) -> None:
    up = bed.up("--set", "workers.classes.slow.memory=4MiB")
    done = up.end()
    assert done.status == 5
    assert done.err.startswith("w2 ran out of memory: the kernel killed it at its limit of 4MiB")
    assert bed.remains(up.name) == []


def test_a_worker_whose_push_is_rejected(bed: Any) -> None:
    up = up_with(bed, "OneNan")
    done = up.end()
    assert (done.status, done.err) == (6, "")
    assert "w1: rejected: w1: a value is NaN or infinite" in done.out
    assert "w1 exited with status 8; the other nodes continue" in done.out
    assert reasons(up)[0] == "A push of w1 was rejected: w1: a value is NaN or infinite."
    run = testbed.Run(up.folder.path)
    assert len(run.updates) == 150
    assert set(run.updates["node"]) == {"w0", "w2"}
    assert run.state.state == "finished"


def test_own_code_that_sends_no_update_is_answered_with_check(bed: Any) -> None:
    (bed.path / "mine.py").write_text(SILENT)
    mine = "algorithm={custom: {file: ./mine.py, class: Mine}}"
    done = bed.up("--set", mine, "--set", "stop={time: 1s}").end()
    assert done.status == 6
    assert "finished before any update: 1 s of emulated time passed" in done.out
    assert "`testbed check FILE` tests whether your algorithm sends updates" in done.out


def test_a_diverging_training_ends_at_once(bed: Any) -> None:
    up = up_with(bed, "Nan")
    done = up.end()
    assert (done.status, done.err) == (6, "")
    state = up.folder.state()
    assert state.state == "finished"
    assert state.reason.startswith("diverged: ")
    assert state.reason.endswith(" at version 0")
    assert f"finished before any update: {state.reason}" in done.out.splitlines()
    assert "try `testbed check FILE`" in done.out
    assert reasons(up)[0].startswith(f"No update was applied: {state.reason}. ")
    assert len(testbed.Run(up.folder.path).updates) == 0
    assert bed.remains(up.name) == []


def test_a_killed_worker_is_named_and_the_others_continue(bed: Any) -> None:
    up = bed.up("--set", "stop.updates=1000", "--set", "workers.think.mean=10ms")
    up.wait_for_updates(20)
    bed.kill_node(up, "w1")
    done = up.end()
    assert (done.status, done.err) == (6, "")
    assert "w1 was ended by SIGKILL; the other nodes continue" in done.out
    lost = "w1 was lost before the end: killed by signal 9. "
    assert any(reason.startswith(lost) for reason in reasons(up))
    run = testbed.Run(up.folder.path)
    assert len(run.updates) == 1000
    assert set(run.updates["node"][-100:]) == {"w0", "w2"}
    assert run.state.state == "finished"
    assert bed.remains(up.name) == []
    entries = read_events(up.folder.events)
    (exited,) = [event for event in only(entries, Exited) if not event.planned]
    (drained,) = only(entries, Drained)
    left = Left("w1", "w1 was ended by SIGKILL")
    events = [entry.event for entry in entries]
    assert events.index(exited) < events.index(left) < events.index(drained)
    assert drained == Drained()  # otherwise it would have waited for their timeout
    assert only(entries, Rejected) == []


@pytest.mark.parametrize("node", ["ps", "evaluator"])
def test_the_run_ends_with_an_essential_node(bed: Any, node: str) -> None:
    up = bed.up(*ENDLESS)
    up.wait_for_updates(20)
    bed.kill_node(up, node)
    done = up.end()
    assert done.status == 5
    assert done.err.startswith(f"{node} was ended by SIGKILL")
    assert reasons(up)[0].startswith(
        f"The run failed: {node} was ended by SIGKILL; it printed nothing."
    )
    assert bed.remains(up.name) == []
    run = testbed.Run(up.folder.path)
    assert len(run.updates) == run.summary["updates"]["total"] >= 20
    assert bed.run("logs", up.name).status == 0


def test_the_run_ends_with_its_agent(bed: Any) -> None:
    up = bed.up(*ENDLESS)
    up.wait_for_updates(20)
    os.kill(read_record(up.folder).pid, signal.SIGKILL)
    done = up.end()
    assert done.status == 5
    assert done.err.startswith("the agent has ended")
    assert "the agent has ended" in up.folder.state().reason
    assert bed.remains(up.name) == []
    assert up.folder.log("agent").exists()
    assert len(testbed.Run(up.folder.path).updates) >= 20
