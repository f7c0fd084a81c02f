"""Devices that train on samples sent over shaped links, compared with a simulation."""

from __future__ import annotations

import json
import os
import signal
from typing import Any

import numpy as np
import pandas as pd
import pytest

import testbed
from testbed.telemetry.entry import only
from testbed.telemetry.event_kinds import FaultApplied, Launched
from testbed.telemetry.events import read_events
from testbed.telemetry.ps_events import Produced

pytestmark = [pytest.mark.root, pytest.mark.slow]

RATES = [19, 35, 61, 77, 23, 28, 31, 68]
SCENARIO = f"""\
name: streams
seed: 1
algorithm: {{scadles: {{learning_rate: 0.05, alpha: 0.5, beta: 0.5}}}}
model: {{mlp: {{hidden: [32]}}}}
dataset: digits
streams:
  rates: {{each: {{per_second: {RATES}}}}}
  policy: persistence
workers:
  count: 8
  classes:
    device: {{speed: 200ms, link: {{up: {{rate: 20mbit}}, down: {{rate: 20mbit}}}}}}
stop: {{time: 20s}}
evaluate: {{every: 10s, images: 100}}
"""
FREEZE = "faults=[{freeze: {workers: [w3], at: {time: 8s}, for: 2s}}]"


def of_rounds(updates: pd.DataFrame, column: str) -> pd.DataFrame:
    """A row for each round of the training, a column for each worker."""
    numbered = updates.assign(round=updates.groupby("worker").cumcount())
    return numbered.pivot_table(index="round", columns="worker", values=column)


@pytest.mark.alone
def test_a_live_stream_matches_the_simulation(bed: Any) -> None:
    """Batches of a second's samples, half of the devices share half of theirs; w3 stops for 2 s.

    While it is stopped no worker continues and samples wait: none is lost, none arrives twice.
    """
    bed.scenario("streams.yaml", SCENARIO)
    up = bed.up("--set", FREEZE, file="streams.yaml")
    name = bed.new_name()
    simulated = bed.run("up", "streams.yaml", "--name", name, "--set", "runtime=simulated")
    assert simulated.status == 0, simulated.err
    done = up.end()
    assert done.status in (0, 6), done.err
    live, model = (testbed.Run(path).updates for path in (up.folder.path, bed.runs / name))
    kept = live["stream_used"] + live["stream_buffered"] + live["stream_truncated"]
    assert (live["stream_produced"] == kept + live["stream_duplicates"]).all()
    assert not live[["stream_duplicates", "stream_missing", "stream_refused"]].any(axis=None)
    _agree(live, model)
    told = only(read_events(up.folder.events), Produced)
    assert told[-1].sent > 0.95 * told[-1].due


def _agree(live: pd.DataFrame, model: pd.DataFrame) -> None:
    """Batches and bytes are equal; queues within a second's arrivals, except around the freeze."""
    columns = ("samples", "injected", "payload_up_bytes", "payload_down_bytes")
    for column in columns:
        found, expected = of_rounds(live, column), of_rounds(model, column)
        rounds = min(len(found), len(expected))
        assert rounds >= 12
        assert (found[:rounds] == expected[:rounds]).all(axis=None), column
    own = of_rounds(live.assign(own=live["samples"] - live["injected"]), "own")
    assert (own == RATES).all(axis=None)
    before = of_rounds(live, "stream_buffered")[:6]
    queues = before - of_rounds(model, "stream_buffered")[:6]
    assert (queues.abs() <= np.array(RATES) + 1).all(axis=None)
    times = [of_rounds(one, "time_seconds").max(axis=1).diff().median() for one in (live, model)]
    assert times[0] == pytest.approx(times[1], rel=0.1)


def test_a_killed_producer_leaves_silent_streams(bed: Any) -> None:
    """Silent streams are skipped after 1.5 s; the run ends, and is not valid."""
    bed.scenario("streams.yaml", SCENARIO)
    options = ("streams.producers=2", "streams.stream_timeout=1500ms", "stop.time=9s")
    settings = [word for option in options for word in ("--set", option)]
    up = bed.up(*settings, file="streams.yaml")
    up.wait_for_updates(8)
    launched = only(read_events(up.folder.events), Launched)
    (pid,) = (event.pid for event in launched if event.node == "producer1")
    os.kill(pid, signal.SIGKILL)
    done = up.end()
    assert done.status == 6, done.err
    reasons = json.loads((up.folder.path / "summary.json").read_text())["verdict"]["reasons"]
    assert any("producer1 was lost before the end" in reason for reason in reasons), reasons
    updates = testbed.Run(up.folder.path).updates
    fed = updates["worker"] % 2 == 0
    last = updates[updates["time_seconds"] == updates["time_seconds"].max()]
    assert set(last["worker"]) == {0, 2, 4, 6} == set(updates["worker"][fed])
    assert not updates["stream_missing"].any()


FAULTS = """\
faults:
  - kill: {nodes: [producer1], at: {time: 3s}, for: 2s}
  - freeze: {nodes: [producer0], at: {time: 3s}, for: 1s}
  - partition: {workers: [w2], at: {time: 4s}, for: 2s}
  - partition: {nodes: [producer0], at: {time: 7s}, for: 1s}
"""


RECORDED = "time_seconds,factor\n0,1\n5,0.5\n20,0\n"
LOTS = (
    *("algorithm={ddl: {learning_rate: 0.05}}", "workers.batch_size=16", "stop.time=14s"),
    *("streams.producers=2", "streams.samples_per_record=4"),
    "streams.over_time={trace: {file: rates.csv, offset: none}}",
)


def test_no_planned_fault_loses_a_sample(bed: Any) -> None:
    """The next producer makes the missing samples; those for a link that is cut arrive later.

    Samples arrive in fours, at half the rates from 5 s on: none arrives before it is due.
    """
    bed.scenario("rates.csv", RECORDED)
    bed.scenario("streams.yaml", SCENARIO + FAULTS)
    up = bed.up(*(word for one in LOTS for word in ("--set", one)), file="streams.yaml")
    done = up.end()
    assert done.status in (0, 6), done.err  # a late fault on a busy host is reported
    reasons = json.loads(up.folder.summary.read_text())["verdict"]["reasons"]
    assert not any("lost" in reason for reason in reasons), reasons
    events = only(read_events(up.folder.events), FaultApplied)
    assert sorted((one.kind, one.begins, one.nodes) for one in events) == [
        *(("freeze", False, ("producer0",)), ("freeze", True, ("producer0",))),
        *(("kill", False, ("producer1",)), ("kill", True, ("producer1",))),
        *(("partition", False, ("producer0",)), ("partition", False, ("w2",))),
        *(("partition", True, ("producer0",)), ("partition", True, ("w2",))),
    ]
    updates = testbed.Run(up.folder.path).updates
    assert not updates[["stream_missing", "stream_refused"]].any(axis=None)
    kept = updates["stream_used"] + updates["stream_buffered"] + updates["stream_duplicates"]
    assert (updates["stream_produced"] == kept).all()
    assert (updates["stream_used"] == 16 * (updates.groupby("worker").cumcount() + 1)).all()
    assert not (updates["stream_produced"] % 4).any()
    passed = updates["time_seconds"].clip(upper=5.0) / 2 + updates["time_seconds"] / 2
    due = passed * updates["worker"].map(dict(enumerate(RATES)))
    assert (updates["stream_produced"] - updates["stream_duplicates"] <= due + 0.01).all()
    last = updates.groupby("worker").last()
    assert (last["time_seconds"] > 9.0).all()  # they continued
    assert bed.remains(up.name) == []
