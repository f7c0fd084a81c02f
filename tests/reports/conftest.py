"""A small run with all numbers worked out by hand, written through the Recorder."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from testbed.telemetry.entry import Entry
from testbed.telemetry.event_kinds import BroughtUp, LinksRead, MemoryRead, StateChanged, TornDown
from testbed.telemetry.folder import RunFolder
from testbed.telemetry.host import HostSample
from testbed.telemetry.ps_events import Evaluated, Finished, Left, Started
from testbed.telemetry.record import Clock, Recorder
from testbed.telemetry.rows import UPDATE

START = 1_700_000_000.0

SCENARIO = """\
name: tiny
algorithm: {name: adacomp}
model: {name: digits-cnn}
dataset: {name: digits}
workers:
  count: 4
  think: {law: "uniform(0.5,1.5)", mean: 100ms}
  classes:
    fast: {share: 0.5, speed: 10ms}
    slow: {share: 0.5}
stop: {updates: 6}
time_scale: 2.0
"""


@dataclass
class Hand:
    """A clock advanced by hand."""

    seconds: float = START

    def clock(self) -> Clock:
        return Clock(wall=lambda: self.seconds, steady=lambda: self.seconds - 5.0)


READING = {
    "sockets": 4,
    "wire_rx_bytes": 10_000,
    "wire_rx_packets": 50,
    "wire_tx_bytes": 20_760,
    "wire_tx_packets": 10,
    "tcp_received_bytes": 6_700,
    "tcp_segments_in": 50,
    "tcp_acked_bytes": 20_000,
    "tcp_segments_out": 30,
    "retransmitted_out_bytes": 100,
    "retransmitted_in_bytes": 40,
}


def rows(**columns: list[float]) -> NDArray[Any]:
    """Rows of the update record; omitted columns are 0."""
    table = np.zeros(len(next(iter(columns.values()))), UPDATE)
    for name, values in columns.items():
        table[name] = values
    return table


def six_updates() -> NDArray[Any]:
    """Workers 0 and 1 are fast, 2 and 3 slow; two of four fast steps are late."""
    return rows(
        time_seconds=[0.5, 1, 1.5, 2, 3, 4],
        wall_seconds=[0.25, 0.5, 0.75, 1, 1.5, 2],
        worker=[0, 1, 2, 0, 1, 3],
        sequence=[1, 1, 1, 2, 2, 1],
        version_applied=[0, 1, 2, 3, 4, 5],
        staleness=[0, 1, 2, 2, 3, 4],
        sigma_mean=[0, 0.5, 1, 1.5, 2, 1],
        step_scale=[1, 1, 1, 0.5, 0.5, 1],
        samples=[10] * 6,
        payload_up_bytes=[1000, 1000, 1000, 1000, 1000, 1200],
        payload_down_bytes=[3000] * 6,
        late_seconds=[0, 0.001, 0, 0.002, 0, 0],
    )


def evaluated(version: int, top1: float, *, final: bool = False) -> Entry:
    """An event of the parameter server."""
    event = Evaluated(
        time_seconds=version / 2,
        version=version,
        payload_up_bytes=1000 * version,
        loss=1 - top1,
        metrics={"top1": top1, "top5": 1.0},
        images=360,
        final=final,
    )
    return Entry(START + 1, 1.0, event)


MakeRun = Callable[..., RunFolder]


def write_run(runs: Path, *, name: str = "tiny-1", **counters: Any) -> RunFolder:
    """A finished run; ``counters`` replace those of the last reading."""
    hand = Hand()
    classes = ["fast", "fast", "slow", "slow"]
    folder = RunFolder.create(
        runs, name, scenario="tiny", text=SCENARIO, classes=classes, now=START - 3
    )
    with Recorder.into(folder, time_scale=2.0, clock=hand.clock()) as recorder:
        recorder.event(StateChanged("starting"))
        recorder.event(LinksRead(checked=4))
        recorder.event(BroughtUp(2.5))
        recorder.from_ps(Entry(START, 0.0, Started()))
        recorder.event(StateChanged("training"))
        recorder.updates(six_updates())
        for version, top1 in ((2, 0.25), (4, 0.75), (6, 0.5)):
            recorder.from_ps(evaluated(version, top1))
        hand.seconds = START + 1
        recorder.traffic(READING | {"wire_rx_bytes": 1}, HostSample(0.95, 3 * 2**30))
        hand.seconds = START + 3
        recorder.from_ps(Entry(START + 2, 2.0, Finished("6 updates applied", 6)))
        recorder.from_ps(Entry(START + 2, 2.0, Left("w1")))
        recorder.from_ps(evaluated(6, 0.625, final=True))
        recorder.traffic(READING | counters, HostSample(0.5, 2 * 2**30))
        recorder.event(MemoryRead({"w0": 10 * 2**20, "w1": 20 * 2**20, "w2": 12 * 2**20}))
        recorder.event(StateChanged("finished", "6 updates applied"))
        recorder.event(TornDown(0.5))
    return folder


@pytest.fixture
def make_run(tmp_path: Path) -> MakeRun:
    """Writes a run into a temporary folder of runs."""
    return partial(write_run, tmp_path / "runs")


@pytest.fixture
def folder(make_run: MakeRun) -> RunFolder:
    """The run folder of the small run."""
    return make_run()
