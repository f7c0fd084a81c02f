"""A whole run, by the command line alone."""

from __future__ import annotations

import json
import os
import shutil
import socket
import stat
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import testbed
from testbed.scenario.experiment import load_model
from testbed.telemetry.entry import only
from testbed.telemetry.event_kinds import LinksRead
from testbed.telemetry.events import read_events
from testbed.telemetry.ps_events import Done

pytestmark = [pytest.mark.root, pytest.mark.slow]

SHIPPED = Path(__file__).parents[2] / "scenarios"

PARAMETERS = 160 + 16_448 + 650
"""Of digits-cnn: 16 filters of 3 x 3 with biases, 256 to 64, 64 to 10."""

SELECTED = 1_726
"""A tenth of them, rounded up."""

KEYS = (
    "format",
    "verdict.valid",
    "verdict.reasons",
    "updates.total",
    "updates.per_second",
    "accuracy.best",
    "accuracy.final",
    "ingress.payload_bytes",
    "ingress.tcp_bytes",
    "ingress.wire_bytes",
    "ingress.retransmitted_bytes",
    "staleness.mean",
    "staleness.mean_step_scale",
    "memory.worker_private_bytes_median",
    "bring_up_seconds",
    "tear_down_seconds",
)


def value(summary: Any, key: str) -> Any:
    for part in key.split("."):
        summary = summary[part]
    return summary


@pytest.mark.alone
def test_the_run_succeeds_and_says_so(finished: Any) -> None:
    up, done = finished
    assert (done.status, done.err) == (0, "")
    lines = [line.strip() for line in done.out.splitlines()]
    assert lines[0] == f"run {up.name}"
    phases = ("starting the parameter server and 3 workers", "training")
    assert 0 < lines.index(phases[0]) < lines.index(phases[1])
    assert any(line.startswith("verdict") and line.endswith("valid") for line in lines)
    assert "ended           finished: 150 updates applied" in done.out
    assert "recovered" not in done.out  # there was nothing to recover
    assert f"figure: {up.folder.figure}" in lines
    assert f"folder: {up.folder.path}" in lines


@pytest.mark.alone
def test_only_the_folder_is_left(finished: Any, shared_bed: Any) -> None:
    up, _ = finished
    assert shared_bed.remains(up.name) == []
    assert sorted(path.name for path in up.folder.path.iterdir()) == [
        *("accuracy-ingress.png", "control", "environment.json", "evaluations.csv"),
        *("events.jsonl", "hosts", "logs", "model", "plan.json", "ps", "run.json"),
        *("scenario.yaml", "slow", "sockets", "summary.json", "traffic.csv", "updates"),
    ]
    assert [path.name for path in up.folder.control.iterdir()] == ["lock"]
    assert up.folder.figure.read_bytes().startswith(b"\x89PNG")


@pytest.mark.alone
def test_the_summary_has_every_value(finished: Any) -> None:
    summary = json.loads(finished[0].folder.summary.read_text())
    missing = [key for key in KEYS if value(summary, key) is None]
    assert missing == []
    verdict = {"valid": True, "reasons": [], "unchecked": [], "warnings": []}
    assert summary["verdict"] == verdict
    assert summary["lateness"]["largest_gap_seconds"] is not None
    assert summary["updates"]["total"] == 150
    assert sum(summary["updates"]["by_class"].values()) == 150
    assert min(summary["accuracy"][one] for one in ("best", "final")) > 0.2
    assert 1e6 < summary["memory"]["worker_private_bytes_median"] < 100e6


@pytest.mark.alone
def test_the_payload_is_the_selected_entries(finished: Any) -> None:
    run = testbed.Run(finished[0].folder.path)
    updates = run.updates
    assert (updates["entries"] <= SELECTED).all()
    assert (updates["payload_up_bytes"] == 8 * updates["entries"]).all()
    assert (updates["payload_down_bytes"] == 4 * PARAMETERS).all()
    assert run.summary["ingress"]["payload_bytes"] == updates["payload_up_bytes"].sum()
    (done,) = only(read_events(run.folder.ps_events), Done)
    assert done.applied_bytes == run.summary["ingress"]["payload_bytes"]


@pytest.mark.alone
def test_payload_tcp_and_wire_bytes_agree(finished: Any) -> None:
    run = testbed.Run(finished[0].folder.path)
    ingress, last = run.summary["ingress"], run.traffic.iloc[-1]
    assert ingress["payload_bytes"] < ingress["tcp_bytes"] < ingress["wire_bytes"]
    assert abs(ingress["wire_bytes"] / ingress["tcp_bytes"] - 1) < 0.15
    assert abs(ingress["reconciliation"]["difference_ratio"]) < 0.01
    expected = last["tcp_received_bytes"] + 66 * last["wire_rx_packets"]
    assert abs(expected - ingress["wire_bytes"]) < 0.01 * ingress["wire_bytes"]
    assert last["sockets"] == 3


@pytest.mark.alone
def test_the_rows_are_consistent(finished: Any) -> None:
    updates = testbed.Run(finished[0].folder.path).updates
    assert updates["version_applied"].tolist() == list(range(150))
    assert (updates["staleness"] == updates["version_applied"] - updates["version_pulled"]).all()
    assert (updates["staleness"] >= 0).all()
    assert updates["wall_seconds"].is_monotonic_increasing
    assert (updates["wall_seconds"] == updates["time_seconds"]).all()
    assert (updates["samples"] == 10).all()
    for _, rows in updates.groupby("node", observed=True):
        assert rows["sequence"].tolist() == list(range(1, len(rows) + 1))
        pulled = rows["version_pulled"].tolist()
        applied = rows["version_applied"].tolist()
        assert all(later > earlier for earlier, later in zip(applied, pulled[1:], strict=False))
    classes = updates.drop_duplicates("node").set_index("node")["device_class"].to_dict()
    assert classes == {"w0": "fast", "w1": "fast", "w2": "slow"}


@pytest.mark.alone
def test_the_last_evaluation_uses_all_images(finished: Any) -> None:
    evaluations = testbed.Run(finished[0].folder.path).evaluations
    assert evaluations["final"].tolist() == [False] * (len(evaluations) - 1) + [True]
    assert evaluations["images"].tolist() == [100] * (len(evaluations) - 1) + [360]
    assert evaluations["version"].is_monotonic_increasing
    assert evaluations["version"].iloc[0] == 0
    last = evaluations.iloc[-1]
    assert (last["version"], last["samples"]) == (150, 1500)
    assert (evaluations["top5"] >= evaluations["top1"]).all()


@pytest.mark.alone
def test_the_saved_models_are_those_evaluated(finished: Any) -> None:
    run = testbed.Run(finished[0].folder.path)
    during, last = run.evaluations.iloc[:-1], run.evaluations.iloc[-1]
    best, final = (load_model(run.folder.path, which) for which in ("best", "final"))
    assert best.parameters.size == final.parameters.size == PARAMETERS
    assert best.taken.evaluation.metrics["top1"] == pytest.approx(during["top1"].max(), abs=1e-9)
    assert final.taken.version == last["version"]
    assert final.taken.evaluation.loss == pytest.approx(last["loss"], abs=1e-9)


@pytest.mark.alone
def test_the_events_are_in_order(finished: Any) -> None:
    run = testbed.Run(finished[0].folder.path)
    kinds = [kind for kind in run.events["event"] if kind != "evaluated"]
    story = ("state", "listening", "links", "started", "brought_up", "finished", "torn_down")
    places = [kinds.index(kind) for kind in story]
    assert all(earlier < later for earlier, later in pairwise(places))
    assert kinds.count("joined") == 3
    assert kinds.count("launched") == 5
    assert only(read_events(run.folder.events), LinksRead) == [LinksRead(checked=4)]
    assert run.state.state == "finished"
    assert run.environment["argv"][1:3] == ["up", "linked.yaml"]


@pytest.mark.alone
def test_a_finished_run_can_be_reported_listed_and_ended(finished: Any, shared_bed: Any) -> None:
    up, _ = finished
    report = shared_bed.run("report", up.name, "--json")
    assert (report.status, report.json) == (0, json.loads(up.folder.summary.read_text()))
    assert "NOT VALID" not in shared_bed.run("report", str(up.folder.path)).out
    rows = shared_bed.run("ps", "--all", "--json").json  # with runs of other tests
    (row,) = (row for row in rows if row["run"] == up.name)
    assert (row["state"], row["workers"]) == ("finished", 3)
    nodes = shared_bed.nodes(up.name)
    assert list(nodes) == ["ps", "evaluator", "w0", "w1", "w2"]
    assert {(node["condition"], node["pid"]) for node in nodes.values()} == {("ended", None)}
    for _ in range(2):
        ended = shared_bed.run("down", up.name)
        assert (ended.status, ended.out) == (0, f"{up.name}: nothing to remove\n")


PRINTING = """\
import socket, torch

class Net(torch.nn.Module):
    def __init__(self, image_shape, classes):
        super().__init__()
        self.score = torch.nn.Linear(64, classes)
        print("hello from", socket.gethostname())

    def forward(self, images):
        return self.score(images.flatten(1))
"""


def test_cold_nodes_with_the_users_model_and_their_logs(bed: Any) -> None:
    (bed.path / "net.py").write_text(PRINTING)
    model = "model={name: custom, file: ./net.py, class: Net}"
    up = bed.up("--workers", "2", "--set", "launch=cold", "--set", model)
    up.wait_for_event("joined")
    follow = bed.run("logs", up.name, "w[0-9]", "--follow")
    done = up.end()
    here = f"hello from {socket.gethostname()}\n"  # printed by the build on the host, before nodes
    assert (done.status, done.err) == (0, here)
    assert set(follow.out.splitlines()) == {"w0 | hello from w0", "w1 | hello from w1"}
    slow = bed.run("logs", up.name, "class=slow", "--json").out.splitlines()
    assert [json.loads(line) for line in slow] == [{"node": "w1", "line": "hello from w1"}] * len(
        slow
    )
    everything = (line.split()[0] for line in bed.run("logs", up.name).out.splitlines())
    assert list(dict.fromkeys(everything)) == ["ps", "evaluator", "w0", "w1"]
    assert (up.folder.path / "custom" / "net.py").read_text() == PRINTING
    assert testbed.Run(up.folder.path).summary["updates"]["total"] == 150
    assert load_model(up.folder.path, "final").layout.shapes == ((10, 64), (10,))


def test_an_active_run_can_be_inspected(bed: Any) -> None:
    up = bed.up(
        *("--set", "stop.updates=1000000", "--set", "workers.think.mean=10ms"),
        *("--set", "workers.classes.slow.memory=300MiB", "--set", "workers.classes.slow.cpu=0.5"),
    )
    up.wait_for_event("brought_up")
    (row,) = bed.run("ps", "--json").json
    assert (row["run"], row["state"], row["folder"]) == (up.name, "training", str(up.folder.path))
    nodes = bed.nodes(up.name)
    for name, node in nodes.items():
        assert node["condition"] == "running"
        assert Path(f"/proc/{node['pid']}/comm").read_text() == f"{name}\n"
        status = Path(f"/proc/{node['pid']}/status").read_text()
        assert "NoNewPrivs:\t1" in status
        assert "CapEff:\t0000000000000000" in status
    uids = {Path(f"/proc/{node['pid']}").stat().st_uid for node in nodes.values()}
    assert len(uids) == 5
    check_limits(up.name)
    live = bed.run("report", up.name, "--json")
    assert live.json["verdict"]["reasons"][0] == "The run is still active."
    assert not up.folder.summary.exists()
    ended = bed.run("down", up.name)
    assert (ended.status, ended.out) == (0, f"{up.name}: stopped\n")
    done = up.end()
    assert done.status == 130
    state = up.folder.state()
    assert (state.state, state.reason) == ("interrupted", "stopped by `testbed down`")
    assert bed.remains(up.name) == []


def check_limits(run: str) -> None:
    """The kernel's files hold what the scenario requests, in either version of control groups."""
    from testbed.host.hierarchies import find_hierarchies

    trees = find_hierarchies()
    memory = next(tree for tree in trees if "memory" in tree.controllers)
    cpu = next(tree for tree in trees if "cpu" in tree.controllers)
    w2, w0 = memory.root / "testbed" / run / "w2", memory.root / "testbed" / run / "w0"
    name = {1: "memory.limit_in_bytes", 2: "memory.max"}[memory.version]
    assert (w2 / name).read_text().strip() == str(300 * 2**20)
    half = os.sysconf("SC_PHYS_PAGES") // 2 * os.sysconf("SC_PAGE_SIZE")  # of the host's
    assert (w0 / name).read_text().strip() == str(half)
    nodes = cpu.root / "testbed" / run
    if cpu.version == 1:
        assert (nodes / "w2" / "cpu.cfs_quota_us").read_text() == "50000\n"
        assert (nodes / "w0" / "cpu.cfs_quota_us").read_text() == "-1\n"
        assert (nodes / "ps" / "cpu.shares").read_text() == "10240\n"
    else:
        assert (nodes / "w2" / "cpu.max").read_text() == "50000 100000\n"
        assert (nodes / "w0" / "cpu.max").read_text() == "max 100000\n"
        assert (nodes / "ps" / "cpu.weight").read_text() == "1000\n"


@pytest.mark.alone
def test_adacomp_sends_a_hundredth_of_the_cnn(bed: Any) -> None:
    if not (data := os.environ.get("TESTBED_DATA")):
        pytest.skip("needs MNIST: set TESTBED_DATA to the folder that holds it")
    options = ("--set", "algorithm.ratio=0.01", "--set", "model=adacomp-cnn")
    name = bed.new_name()
    done = bed.run(
        *("up", "linked.yaml", "--name", name, *options, "--set", "dataset=mnist"),
        *("--set", "stop.updates=120", "--set", "evaluate.every=60"),
        TESTBED_DATA=data,
    )
    assert (done.status, done.err) == (0, "")
    run = testbed.Run(bed.runs / name)
    assert (run.updates["payload_up_bytes"] <= 2_117 * 8).all()
    full = run.updates["entries"] == 2_117
    assert full.mean() > 0.9  # the others had a selected value that was zero
    assert (run.updates.loc[full, "payload_up_bytes"] == 16_936).all()
    assert (run.updates["payload_down_bytes"] == 4 * 211_690).all()
    assert run.evaluations["images"].iloc[-1] == 10_000
    assert abs(run.summary["ingress"]["reconciliation"]["difference_ratio"]) < 0.01


@pytest.mark.parametrize("umask", [0o027, 0o077])
def test_any_umask_and_any_folder_name_work(bed: Any, umask: int) -> None:
    """The run measures links, reads a file of the user's and has sockets in that folder."""
    shutil.copytree(SHIPPED / "custom", bed.path / "own")
    (bed.path / "own" / "dc_asgd.py").chmod(0o600)
    settings = ("--set", "stop.updates=200", "--set", "paced=false")
    callers = os.umask(umask)
    try:
        runs = str(bed.path / "ratio=0.1,seeds=[1,2]#%20?")
        up = bed.up("--runs", runs, *settings, file="own/dc-asgd.yaml")
    finally:
        os.umask(callers)
    done = up.end()
    assert done.status in (0, 6), done.err  # 6: this host was too busy to measure the links
    assert len(testbed.Run(up.folder.path).updates) == 200
    assert stat.S_IMODE(up.folder.path.stat().st_mode) == 0o777 & ~umask
