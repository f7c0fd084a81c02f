"""The metrics of a workload, as a scrape shows them."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from prometheus_client import CollectorRegistry, generate_latest

from testbed.plan.workload import plan_workload
from testbed.reports.metrics.replay import STEP_SECONDS, Replay
from testbed.reports.metrics.workload import PAIR_BYTES, WorkloadMetrics
from testbed.reports.workload import WorkloadRun
from testbed.scenario.dump import dump_data
from testbed.scenario.load_workload import load_workload
from testbed.telemetry.entry import Entry
from testbed.telemetry.event_kinds import StateChanged, WorkloadBegun
from testbed.telemetry.folder import RunFolder
from testbed.telemetry.record import Recorder
from testbed.telemetry.rows import MetricRow, NodeRow, PairRow

TEXT = """\
name: pair
workload:
  server: {command: [serve]}
  client: {command: [ask], count: 2, classes: {fast: {count: 1}, slow: {count: 1}}}
"""


def test_a_scrape_has_the_last_reading_of_every_node(tmp_path: Path) -> None:
    file = tmp_path / "pair.yaml"
    file.write_text(TEXT)
    sink = WorkloadMetrics(plan_workload(load_workload(file), "r1"), seconds=lambda: 0.0)
    registry = CollectorRegistry()
    registry.register(sink)
    sink.event(Entry(0.0, None, StateChanged("running")))
    sink.readings([NodeRow(1.0, "server", 1, 1, 1, 1, 0, None, None, None)])
    sink.readings(
        [
            NodeRow(2.0, "server", 500, 5, 900, 9, 70, 3, 1.5, 10_000_000),
            NodeRow(2.0, "client1", 900, 9, 500, 5, 0, 0, None, None),
        ]
    )
    sink.readings([PairRow(1.0, "client1", "server", 0, 0, 0, None, 500, 5)])
    sink.readings([PairRow(2.0, "client1", "server", 0, 0, 0, None, 900, 9)])
    sink.readings([MetricRow(1.0, "client1", "loss", 3.5)])
    sink.readings([MetricRow(2.0, "client1", "loss", 2.5)])
    sink.time_passed(2.0)
    lines = {line for line in generate_latest(registry).decode().splitlines() if line[0] != "#"}
    server = 'algorithm="",class="server",%snode="server",run="r1"'
    client = 'algorithm="",class="slow",%snode="client1",run="r1"'
    pair = 'algorithm="",class="slow",node="client1",peer="server",run="r1"'
    up, down, loss = 'direction="up",', 'direction="down",', 'metric="loss",'
    assert lines == {
        'testbed_time_seconds{algorithm="",run="r1"} 2.0',
        'testbed_run_state{algorithm="",run="r1",state="running"} 1.0',
        'testbed_exporter_cpu_seconds_total{algorithm="",run="r1"} 0.0',
        f"testbed_node_bytes_total{{{server % up}}} 500.0",
        f"testbed_node_bytes_total{{{server % down}}} 900.0",
        f"testbed_node_packets_total{{{server % up}}} 5.0",
        f"testbed_node_packets_total{{{server % down}}} 9.0",
        f"testbed_node_retransmitted_bytes_total{{{server % ''}}} 70.0",
        f"testbed_node_dropped_packets_total{{{server % ''}}} 3.0",
        f"testbed_node_cpu_seconds_total{{{server % ''}}} 1.5",
        f"testbed_node_memory_bytes{{{server % ''}}} 1e+07",
        f"testbed_node_bytes_total{{{client % up}}} 900.0",
        f"testbed_node_bytes_total{{{client % down}}} 500.0",
        f"testbed_node_packets_total{{{client % up}}} 9.0",
        f"testbed_node_packets_total{{{client % down}}} 5.0",
        f"testbed_node_retransmitted_bytes_total{{{client % ''}}} 0.0",
        f"testbed_node_dropped_packets_total{{{client % ''}}} 0.0",
        f"testbed_pair_bytes_total{{{pair}}} 900.0",
        f"testbed_pair_packets_total{{{pair}}} 9.0",
        f"testbed_printed_value{{{client % loss}}} 2.5",
    }


def test_a_replay_takes_one_row_of_each_pair_and_step(tmp_path: Path) -> None:
    """Of readings at 1, 2, ..., 12 s, steps at 5, 10 and 15 s show those at 5, 10 and 12 s."""
    file = tmp_path / "pair.yaml"
    file.write_text(TEXT)
    workload = load_workload(file)
    dumped = dump_data(workload.model_dump(mode="json", exclude_none=True), "scenario")
    created = {"scenario": "pair", "text": dumped, "classes": [], "now": 0.0}
    folder = RunFolder.create(tmp_path / "runs", "pair-1", **created)
    pairs = (("client0", "server"), ("server", "client0"))
    with Recorder.into(folder, time_scale=1.0) as recorder:
        recorder.event(WorkloadBegun())
        for second in range(1, 13):
            recorder.readings([NodeRow(second, "server", 1, 1, 1, 1, 0, None, None, None)])
            sent = 100 * second
            recorder.readings([PairRow(second, *pair, 0, 0, 0, None, sent, 1) for pair in pairs])
    run = WorkloadRun(folder.path)
    thinned = pd.concat(run.last_pairs(every_seconds=STEP_SECONDS))
    assert [*thinned["time_seconds"]] == [5, 5, 10, 10, 12, 12]
    assert {*thinned.columns} == {*run.pairs.columns}
    replay = Replay(run, plan_workload(workload, "pair-1"))
    shown = {
        moment.emulated: [sample.value for sample in moment.families[PAIR_BYTES.name].samples]
        for moment in replay.moments()
        if PAIR_BYTES.name in moment.families
    }
    assert shown == {5.0: [500, 500], 10.0: [1000, 1000], 15.0: [1200, 1200]}
