"""Traces in real containers: workers are present, and links are shaped, as recorded."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest

import testbed
from testbed.network.qdiscs import FRAME_BYTES
from testbed.reports.measurements import LATE_LINK_LIMIT_SECONDS
from testbed.telemetry.entry import only
from testbed.telemetry.event_kinds import FaultApplied, LinkChanged
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


@pytest.mark.alone  # it compares times
def test_workers_restart_after_all_were_absent(bed: Any) -> None:
    bed.scenario("shifts.csv", "time_seconds,available\n0,1\n1.5,0\n3,1\n60,1\n")
    bed.scenario("shifts.yaml", SHIFTS)
    up = bed.up(file="shifts.yaml")
    done = up.end()
    assert done.status in (0, 6), done.err  # a late change on a busy host is reported
    reasons = json.loads(up.folder.summary.read_text())["verdict"]["reasons"]
    assert [reason for reason in reasons if "late in real time" not in reason] == []
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
        assert list(own["sequence"]).count(1) == 2  # before and after its restart
        assert own["time_seconds"].max() > 3.0
    assert bed.remains(up.name) == []


MOVING = """\
name: moving
seed: 1
paced: false
algorithm: {adacomp: {ratio: 0.1}}
model: digits-cnn
dataset: digits
workers:
  count: 2
  think: {mean: 20ms}
  classes:
    moving: {speed: 20ms, link: {up: {rate: {trace: rate.csv, offset: none}}}}
stop: {time: 6s}
evaluate: {every: 1s, images: 100}
"""
RATES = [(0, 20e6), *((1.5 + 0.5 * index, (400e3, 200e3)[index % 2]) for index in range(8))]
"""From 1.5 s on so little that a push, which is 14 KB, takes longer than the half second."""


@pytest.mark.alone
def test_rates_change_on_time_and_traffic_is_recorded(bed: Any) -> None:
    rows = "".join(f"{time},{rate:.0f}\n" for time, rate in [*RATES, (60, 0)])
    bed.scenario("rate.csv", f"time_seconds,bits_per_second\n{rows}")
    bed.scenario("moving.yaml", MOVING)
    up = bed.up(file="moving.yaml")
    done = up.end()
    assert done.status in (0, 6), done.err
    run = testbed.Run(up.folder.path)
    of_both = only(read_events(up.folder.events), LinkChanged)
    assert {one.action for one in of_both} == {"recorded"}
    changes = [one for one in of_both if one.nodes == ("w0",)]
    asked = [f"{rate / 1e3:g}kbit" for _, rate in RATES[1:]]
    assert [one.up and one.up["rate"] for one in changes] == asked
    gaps = [after.planned - before.planned for before, after in pairwise(changes)]
    assert gaps == pytest.approx([0.5] * 7, abs=1e-3)
    late = [one for one in of_both if one.actual - one.planned > LATE_LINK_LIMIT_SECONDS]
    assert run.summary["links"]["late_changes_ratio"] == len(late) / 16

    # From 1.5 s on each second has half of 400 and half of 200 kbit, and the link is never idle.
    links = run.links[run.links["time_seconds"].between(3.0, 5.4)]
    assert set(links["direction"]) == {"up"} and set(links["node"]) == {"w0", "w1"}
    assert links["asked_bits_per_second"].to_numpy() == pytest.approx(300e3, rel=0.2)
    share = links["delivered_bits_per_second"].sum() / links["asked_bits_per_second"].sum()
    # The kernel refills a tbf's bucket, two frames, at every change: twice a second here.
    refills = 2 * 2 * FRAME_BYTES * 8 / 300e3
    assert 0.7 < share < 1 + refills
    assert bed.remains(up.name) == []
