"""Recordings in real containers: workers are there, and links are shaped, as they have it."""

from __future__ import annotations

import json
from typing import Any

import pytest

import testbed
from testbed.events.entry import only
from testbed.events.kinds import FaultApplied
from testbed.telemetry.events import read_events

pytestmark = [pytest.mark.root, pytest.mark.slow]

SHIFTS = """\
name: shifts
seed: 1
paced: false
algorithm: {adacomp: {ratio: 0.1}}
model: digits-cnn
dataset: digits
workers:
  count: 3
  think: {mean: 40ms}
  availability: {trace: shifts.csv, offset: none}
stop: {time: 5s}
evaluate: {every: 1s, images: 100}
"""


def test_workers_that_are_all_switched_off_begin_anew_when_they_are_back(bed: Any) -> None:
    bed.scenario("shifts.csv", "time_seconds,available\n0,1\n1.5,0\n3,1\n60,1\n")
    bed.scenario("shifts.yaml", SHIFTS)
    up = bed.up(file="shifts.yaml")
    done = up.end()
    assert done.status in (0, 6), done.err  # one that is late on a busy host is told
    reasons = json.loads(up.folder.summary.read_text())["verdict"]["reasons"]
    assert [reason for reason in reasons if "late by the host's clock" not in reason] == []
    events = only(read_events(up.folder.events), FaultApplied)
    nodes = [(node,) for node in ("w0", "w1", "w2")]
    assert [(one.kind, one.nodes, one.planned_seconds) for one in events] == [
        *(("leave", node, 1.5) for node in nodes),
        *(("join", node, 3.0) for node in nodes),
    ]
    assert all(one.recorded and one.actual_seconds >= one.planned_seconds for one in events)
    gone = {one.nodes[0]: one.actual_seconds for one in events if one.kind == "leave"}
    for node, own in testbed.Run(up.folder.path).updates.groupby("node"):
        assert not own["time_seconds"].between(gone[node] + 0.5, 3.0).any()
        assert list(own["sequence"]).count(1) == 2  # of its first life, and of its second
        assert own["time_seconds"].max() > 3.0
    assert bed.remains(up.name) == []
