"""Streams through a real broker that is killed and restarted: no record is lost."""

from __future__ import annotations

import json
import os
import re
import signal
import stat
from typing import Any

import pytest

import testbed
from testbed.telemetry.entry import only
from testbed.telemetry.event_kinds import Exited, Launched
from testbed.telemetry.events import read_events

pytestmark = [pytest.mark.root, pytest.mark.kafka, pytest.mark.slow]

SCENARIO = """\
name: brokered
seed: 1
algorithm: {ddl: {learning_rate: 0.05}}
model: digits-cnn
dataset: digits
workers: {count: 8, batch_size: 16, classes: {device: {speed: 20ms}}}
streams:
  rates: {constant: {per_second: 20}}
  transport: {kafka: {heap: 256MiB, network_threads: 2, io_threads: 2}}
  stream_timeout: off
faults:
  - kill: {nodes: [broker], at: {version: 64}, for: 2s}
  - kill: {nodes: [producer0], at: {version: 96}}
  - partition: {workers: [w3], at: {version: 112}, for: 2s}
stop: {updates: 160}
evaluate: {every: 80, images: 100}
"""
"""Twenty rounds of eight devices: 320 samples of each, which take 16 s to be made."""


KAFKA = {name: os.environ[name] for name in ("TESTBED_KAFKA", "JAVA_HOME") if name in os.environ}


def test_killing_a_broker_loses_no_record(bed: Any) -> None:
    """The broker is killed twice, once by a fault; then a producer, and a device is cut off."""
    file = bed.scenario("brokered.yaml", SCENARIO)
    up = bed.start("up", file, "--name", bed.new_name(), **KAFKA)
    for event in ("launched", "joined", "started"):  # a broker starts slowly on a busy host
        up.wait_for_event(event)
    up.wait_for_updates(32)
    assert not stat.S_IMODE(up.folder.broker.stat().st_mode) & 0o007, "closed to other users"
    launched = only(read_events(up.folder.events), Launched)
    (pid,) = (event.pid for event in launched if event.node == "broker")
    os.kill(pid, signal.SIGKILL)
    done = up.end()
    assert "broker was ended by SIGKILL; restarted" in done.out, done
    run, events = testbed.Run(up.folder.path), read_events(up.folder.events)
    assert run.state.reason == "160 updates applied", done
    exits = [event for event in only(events, Exited) if event.status]
    assert [(one.node, one.planned, one.restarted) for one in exits] == [
        *(("broker", False, True), ("broker", True, False), ("producer0", True, True)),
    ]
    last = run.updates.groupby("worker").last()
    assert len(last) == 8
    assert last["stream_used"].tolist() == [320] * 8
    assert (last["stream_missing"] == 0).all(), "every sequence number has come"
    assert (last["stream_refused"] == 0).all()
    kept = last["stream_used"] + last["stream_buffered"]
    kept += last["stream_truncated"] + last["stream_duplicates"]
    assert (last["stream_produced"] == kept).all()
    assert not up.folder.broker_records.exists()
    assert bed.remains(up.name) == []


STOPPED = """\
name: stopped
seed: 1
algorithm: {ddl: {learning_rate: 0.05}}
model: digits-cnn
dataset: digits
workers: {count: 2, batch_size: 16}
streams:
  rates: {constant: {per_second: 20}}
  transport: {kafka: {heap: 256MiB, network_threads: 2, io_threads: 2}}
  stream_timeout: 2s
stop: {time: 18s}
evaluate: {every: 9s, images: 100}
"""
TRUNCATIONS = 5
"""With one, the broker may still find the next record, if it indexes just that one."""


def test_a_topic_that_was_truncated_makes_the_run_invalid(bed: Any) -> None:
    """The broker accepts its records, 20 a second until 18 s, and cannot read them any more."""
    file = bed.scenario("stopped.yaml", STOPPED)
    up = bed.start("up", file, "--name", bed.new_name(), **KAFKA)
    for event in ("launched", "joined", "started"):
        up.wait_for_event(event)
    topic = up.folder.broker_records / f"{up.name}-w0-0"
    for seen in range(TRUNCATIONS):
        up.wait_for_updates(4 + seen)
        os.truncate(topic / "00000000000000000000.log", 0)
    done = up.end()
    assert done.status == 6, done
    updates = testbed.Run(up.folder.path).updates
    summary = json.loads(up.folder.summary.read_text())
    assert not updates["stream_missing"].any(), "later samples have not come either"
    reasons = [one for one in summary["verdict"]["reasons"] if "received" in one]
    assert len(reasons) == 1, reasons
    found = re.match(r"w0 received ([0-9]+) of the ([0-9]+) samples of its stream", reasons[0])
    assert found is not None, reasons
    received, due = map(int, found.groups())
    assert due > 300  # those of the whole run
    own = updates[updates["worker"] == 0]
    assert own["stream_produced"].max() <= received < 200
