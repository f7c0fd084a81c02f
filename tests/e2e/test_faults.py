"""Faults in real containers: each is on record, none of them counts as a loss, and none stays."""

from __future__ import annotations

import json
from typing import Any

import pytest

import testbed
from testbed.events.entry import only
from testbed.events.kinds import Crashed, FaultApplied, Finished
from testbed.telemetry.events import read_events

pytestmark = [pytest.mark.root, pytest.mark.slow]

FAULTS = """\
name: faults
seed: 1
paced: false
algorithm: {adacomp: {ratio: 0.1}}
model: digits-cnn
dataset: digits
workers:
  count: 8
  think: {mean: 40ms}
faults:
  - crash: {workers: [w0, w1], after_push: 0.2}
  - freeze: {workers: [w2], at: {time: 500ms}, for: 1s}
  - kill: {workers: [w3], at: {version: 40}}
  - leave: {workers: [w4], at: {time: 1s}}
  - join: {workers: [w5], at: {time: 1500ms}}
  - join: {workers: [w3], at: {time: 3s}}
stop: {time: 4s}
evaluate: {every: 1s, images: 100}
"""


def happened(up: Any) -> list[FaultApplied]:
    return only(read_events(up.folder.events), FaultApplied)


def test_every_kind_happens_and_none_is_a_loss(bed: Any) -> None:
    bed.scenario("faults.yaml", FAULTS)
    up = bed.up(file="faults.yaml")
    done = up.end()
    assert done.status in (0, 6), done.err  # a fault that is late on a busy host is told
    reasons = json.loads(up.folder.summary.read_text())["verdict"]["reasons"]
    assert [reason for reason in reasons if "late by the host's clock" not in reason] == []
    events = happened(up)
    assert all(event.actual_seconds >= event.planned_seconds for event in events)
    kinds = sorted((event.kind, event.begins, event.nodes) for event in events)
    assert kinds == [
        *(("crash", True, ("w0",)), ("crash", True, ("w1",))),
        *(("freeze", False, ("w2",)), ("freeze", True, ("w2",))),
        *(("join", True, ("w3",)), ("join", True, ("w5",))),
        *(("kill", True, ("w3",)), ("leave", True, ("w4",))),
    ]
    moments = {event.nodes[0]: event.actual_seconds for event in events if event.begins}
    updates = testbed.Run(up.folder.path).updates
    own = dict(iter(updates.groupby("node")))
    for crash in only(read_events(up.folder.events), Crashed):
        assert own[crash.node]["sequence"].max() == crash.sequence
    standing = own["w2"]["time_seconds"].between(moments["w2"] + 0.01, moments["w2"] + 0.9)
    assert not standing.any()
    assert own["w2"]["time_seconds"].max() > 1.6
    assert own["w4"]["time_seconds"].max() < moments["w4"] + 0.5
    assert own["w5"]["time_seconds"].min() > 1.5
    assert list(own["w3"]["sequence"]).count(1) == 2  # of its first life, and of its second
    assert bed.remains(up.name) == []


def test_all_crashed_is_stalled(bed: Any) -> None:
    up = bed.up("--set", "faults=[{crash: {after_push: 1.0}}]")
    done = up.end()
    assert (done.status, done.err) == (6, "")
    (finished,) = only(read_events(up.folder.events), Finished)
    expected = "stalled: nobody is left who could push (3 silent, the others have left)"
    assert (finished.stalled, finished.version, finished.reason) == (True, 3, expected)
    assert bed.remains(up.name) == []
