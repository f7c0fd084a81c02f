"""Streams through a real broker that is killed and restarted: no record is lost."""

from __future__ import annotations

import os
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


def test_killing_a_broker_loses_no_record(bed: Any) -> None:
    """The broker is killed twice, once by a fault; then a producer, and a device is cut off."""
    kafka = {
        name: os.environ[name] for name in ("TESTBED_KAFKA", "JAVA_HOME") if name in os.environ
    }
    file = bed.scenario("brokered.yaml", SCENARIO)
    up = bed.start("up", file, "--name", bed.new_name(), **kafka)
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
