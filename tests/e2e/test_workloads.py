"""Workloads: programs without a training, native and in Docker containers."""

from __future__ import annotations

import json
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

pytestmark = [pytest.mark.slow]
NODE_FAILED, VERDICT = 5, 6

SENT = 2_000_000
SEND = f"""\
import socket, sys, time
host, _, port = sys.argv[1].rpartition(":")
peer = socket.create_connection((host, int(port)))
peer.sendall(bytes({SENT}))
peer.shutdown(socket.SHUT_WR)
print("received", peer.recv(100).decode())
open("done", "w").write(open("word").read())
"""
SERVE = """\
import socket, sys
server = socket.create_server(("", int(sys.argv[1])), backlog=5)
for _ in range(2):
    peer, _ = server.accept()
    count = 0
    while data := peer.recv(65536):
        count += len(data)
    peer.sendall(str(count).encode())
    peer.close()
    print("served", count, flush=True)
"""

PAIR = """\
name: pair
seed: 1
workload:
  server:
    command: [PYTHON, serve.py, "{port:data}"]
    files: [serve.py]
    ports: {data: 7000}
    end: fatal
  client:
    count: 2
    command: [PYTHON, send.py, "{server:data}"]
    files: [send.py, word]
    link: {up: {rate: 20mbit}}
    after: {server: {listens: data}}
  report:
    command: [sh, -c, "echo all done; id -u"]
    after: {server: {prints: served}, client: ended}
"""


def python_of(runtime: str) -> str:
    return sys.executable if runtime == "native" else "python"


def scenario(bed: Any, text: str, runtime: str) -> str:
    """The file of a scenario, beside the programs that it runs."""
    for name, content in {"serve.py": SERVE, "send.py": SEND, "word": "sesame"}.items():
        bed.scenario(name, content)
    file: str = bed.scenario("pair.yaml", text.replace("PYTHON", python_of(runtime)))
    return file


def readings(up: Any) -> dict[str, Any]:
    summary: dict[str, Any] = json.loads(up.folder.summary.read_text())
    return summary["nodes"]  # type: ignore[no-any-return]


def test_bytes_by_hand_are_those_measured(bed: Any, runtime: str) -> None:
    """2 MB are 1,382 frames of 1,514 B, with 66 B of headers each; the server acknowledges them."""
    text = PAIR.replace("end: fatal", "end: final")  # it serves both clients, and is done
    up = bed.up("--runtime", runtime, file=scenario(bed, text, runtime))
    done = up.end()
    assert done.status in {0, VERDICT}, done.err
    assert up.folder.state().reason == "all final programs have ended with status 0"
    frames = -(-SENT // 1448)
    by_hand = SENT + frames * 66
    for name in ("client0", "client1"):
        one = readings(up)[name]
        sent = one["up_bytes"] - one["retransmitted_bytes"]
        assert abs(sent - by_hand) <= 0.01 * by_hand
        assert one["exit_status"] == 0
        assert f"received {SENT}" in up.folder.log(name).read_text()
        assert (up.folder.home(name) / "done").read_text() == "sesame"
    pairs = json.loads(up.folder.summary.read_text())["pairs"]
    for name in ("client0", "client1"):
        there, back = pairs[name]["server"], pairs["server"][name]
        assert 0 <= there["sent_bytes"] - SENT <= 2  # SYN and FIN count like a byte each
        assert 0 <= back["received_bytes"] - SENT <= 2
        assert there["retransmitted_bytes"] == readings(up)[name]["retransmitted_bytes"]
        assert there["round_trip_seconds"] > 0
        one = readings(up)[name]  # all that it sends goes to the server
        assert (there["frame_bytes"], there["packets"]) == (one["up_bytes"], one["up_packets"])
    assert "client0" not in pairs["client1"]
    both = sum(readings(up)[f"client{index}"]["up_bytes"] for index in range(2))
    assert abs(readings(up)["server"]["down_bytes"] - both) <= 0.01 * both
    starts = [e["node"] for e in events(up) if e["event"] == "launched"]
    assert [name for name in starts if not name.startswith("probe")] == [
        *("server", "client0", "client1", "report")
    ]
    assert "all done" in bed.run("logs", up.name, "report").out
    assert sorted(bed.nodes(up.name)) == ["client0", "client1", "report", "server"]
    assert bed.run("report", up.name, "--json").json["workload"]["client"] == 2
    assert bed.remains(up.name) == []


def events(up: Any) -> list[dict[str, Any]]:
    return [json.loads(line) for line in up.folder.events.read_text().splitlines()]


def test_bad_programs_are_named_and_nothing_is_left(bed: Any, runtime: str) -> None:
    waits = PAIR.replace("listens: data}", "listens: data, within: 2s}")
    late = "that server listens on port data has not happened within 2s (it listens at 7001)"
    for text, expected in (
        (waits.replace('"{port:data}"', '"7001"'), late),
        (
            waits.replace("[PYTHON, serve.py,", "[nonesuch,"),
            "nonesuch: no such program in the node.",
        ),
    ):
        up = bed.up("--runtime", runtime, file=scenario(bed, text, runtime))
        done = up.end()
        assert done.status == NODE_FAILED
        assert expected in done.err
        assert up.folder.state().state == "failed"
        assert bed.remains(up.name) == []


FORK = """\
import subprocess, time
children = [subprocess.Popen(["sleep", "60"]) for _ in range(100)]
print("forked", sum(child.poll() is None for child in children), flush=True)
time.sleep(60)
"""


def test_children_and_daemons_end_with_their_node(bed: Any, runtime: str) -> None:
    """A hundred children run; a command that leaves its server behind ends the node."""
    programs = {
        "parent": {"command": [python_of(runtime), "-c", FORK], "end": "noticed"},
        "daemon": {
            "command": ["sh", "-c", "sleep 60 & echo detached"],
            "after": {"parent": {"prints": "^forked 100$"}},
            "end": "fatal",
        },
    }
    text = yaml.safe_dump({"name": "children", "workload": programs, "stop": {"time": "2min"}})
    up = bed.up("--runtime", runtime, file=bed.scenario("children.yaml", text))
    done = up.end()
    assert done.status == NODE_FAILED
    assert "daemon exited with status 0; it printed:\n    detached" in done.err
    assert "run servers in the foreground, not as daemons" in done.err
    assert bed.remains(up.name) == []


def test_faults_reach_the_nodes_of_a_workload(bed: Any, runtime: str) -> None:
    """The frozen one loses its four seconds; the killed one starts again at a line of another."""
    beat = (
        "import time\nfor beat in range(30):\n    print(time.time(), flush=True); time.sleep(0.2)"
    )
    programs: dict[str, dict[str, Any]] = {
        name: {"command": [python_of(runtime), "-u", "-c", beat]}
        for name in ("frozen", "cut", "dead", "killed", "stuck")
    }
    programs["cut"]["command"][-1] = beat.replace("time.time()", "'round', beat")
    programs["cut"]["metrics"] = {
        name: {"regex": f"{name} ([0-9]+)"} for name in ("round", "accuracy")
    }
    spin = (
        "import time\nend = time.monotonic() + 5\nnext = 0\n"
        "while (now := time.monotonic()) < end:\n"
        "    if now > next:\n"
        "        next = now + 0.05; print(time.time(), time.process_time(), flush=True)"
    )
    programs["slow"] = {"command": [python_of(runtime), "-u", "-c", spin], "cpu": 0.4}
    rounds = {"at": {"log": "^round 10$"}, "until": {"log": "^round 20$"}}
    faults: list[dict[str, Any]] = [
        {"slow": {"nodes": ["slow"], "at": {"time": "2s"}, "for": "2s", "factor": 8}},
        {"freeze": {"nodes": ["frozen"], "at": {"time": "1s"}, "for": "4s"}},
        {"partition": {"nodes": ["cut"], "at": {"log": "^round 5$"}, "for": "1s"}},
        {"link": {"nodes": ["cut"], "at": {"time": "3s"}, "for": "1s", "up": {"rate": "1mbit"}}},
        {"kill": {"nodes": ["dead"], "at": {"time": "2s"}}},
        {"kill": {"nodes": ["killed"], **rounds}},
        {"kill": {"nodes": ["stuck"], "at": {"time": "1s"}, "until": {"log": "^ruond 20$"}}},
    ]
    text = yaml.safe_dump({"name": "faulty", "workload": programs, "faults": faults})
    up = bed.up("--runtime", runtime, file=bed.scenario("faulty.yaml", text))
    done = up.end()
    assert done.status in {0, VERDICT}, done.err
    times = [float(line) for line in up.folder.log("frozen").read_text().split()]
    froze, thawed = (one["time"] for one in events(up) if one.get("kind") == "freeze")
    assert max(later - at for at, later in pairwise(times)) >= (thawed - froze) / 2
    assert len(up.folder.log("dead").read_text().splitlines()) < 30
    assert len(up.folder.log("killed").read_text().splitlines()) > 30
    begun, ended = (one["time"] for one in events(up) if one.get("kind") == "slow")
    lines = up.folder.log("slow").read_text().splitlines()
    used = [tuple(map(float, line.split())) for line in lines]
    within = [sofar for at, sofar in used if begun + 0.2 < at < ended - 0.3]
    spent = max(within, default=0) - min(within, default=0)
    assert spent < 0.05 * (ended - begun) + 0.05  # a quota of 0.05 CPUs
    kinds = [(one["kind"], one["begins"]) for one in events(up) if one["event"] == "fault"]
    assert kinds.count(("partition", False)) == kinds.count(("link", False)) == 1
    summary = json.loads(up.folder.summary.read_text())
    assert [summary["metrics"]["round"][key] for key in ("count", "last")] == [30, 29.0]
    assert "The metric accuracy of cut was never printed" in done.out
    assert "The kill of faults.6 never ended: it waited for a line with '^ruond 20$'" in done.out
    assert "dead, killed by a fault, except stuck, frozen" in up.folder.state().reason
    assert bed.remains(up.name) == []


SERVE_METRICS = """\
import http.server, json, socket, threading, time
served = 0

class Reply(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        global served
        served += self.server.server_port == 9100
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"# TYPE rounds counter\\nrounds_total %d\\n" % served)
        if self.server.server_port == 9101:
            while True:
                self.wfile.write(bytes(65536))

for port in (9100, 9101):
    server = http.server.HTTPServer(("127.0.0.1", port), Reply)
    threading.Thread(target=server.serve_forever, daemon=True).start()
silent = socket.create_server(("", 9102))
for beat in range(300):
    print(json.dumps({"beat": beat, "eval": {"loss": 9 - beat}}), flush=True)
    time.sleep(0.1)
"""


def quota(run: str, node: str) -> int:
    """The CPU time, in microseconds, that a node may use in 0.1 s; of either version."""
    root = Path("/sys/fs/cgroup")
    groups = [*root.glob(f"testbed/{run}/{node}"), *root.glob(f"*/testbed/{run}/{node}")]
    files = [group / name for group in groups for name in ("cpu.cfs_quota_us", "cpu.max")]
    (text,) = (file.read_text() for file in files if file.exists())
    return int(text.split()[0])


@pytest.mark.root
def _faults(up: Any) -> list[dict[str, Any]]:
    return [one for one in events(up) if one["event"] == "fault"]


def test_a_cpu_limit_is_divided_by_hand_and_given_back(bed: Any) -> None:
    programs = {
        "busy": {"command": ["sleep", "60"], "cpu": 0.5},
        "free": {"command": ["sleep", "60"]},
    }
    file = bed.scenario("slow.yaml", yaml.safe_dump({"name": "slow", "workload": programs}))
    up = bed.up("--runtime", "native", file=file)
    up.wait_for_event("workload_begun")
    up.wait_for(lambda: up.folder.state().state == "running")
    refused = bed.run("fault", "slow", up.name, "free", "--factor", "5", "--for", "1s")
    assert refused.status == 2
    assert "selector: found free, expected nodes with a `cpu` limit" in refused.err
    done = bed.run("fault", "slow", up.name, "busy", "--factor", "5", "--for", "8s")
    assert done.out == "busy: the CPU limit is divided by 5 for 8s of emulated time\n", done.err
    assert quota(up.name, "busy") == 10_000
    up.wait_for(lambda: quota(up.name, "busy") == 50_000)
    # The agent has ended the fault; the controller records that a moment later.
    up.wait_for(lambda: len(_faults(up)) == 2)
    assert [(one["kind"], one["begins"], one["nodes"]) for one in _faults(up)] == [
        *(("slow", True, ["busy"]), ("slow", False, ["busy"]))
    ]
    assert bed.run("down", up.name).status == 0
    up.end()


def test_metrics_are_read_from_json_and_endpoints(bed: Any, runtime: str) -> None:
    """An endpoint that answers without an end, and one that never does, hold nothing up."""
    bed.scenario("serve.py", SERVE_METRICS)
    served = {"prometheus": "rounds_total", "every": "200ms"}
    metrics: dict[str, dict[str, Any]] = {
        "loss": {"json": "eval.loss", "better": "lower"},
        "rounds": {**served, "port": "metrics"},
        "endless": {**served, "port": 9101},
        "silent": {**served, "port": 9102},
        "closed": {**served, "port": 9103},
    }
    fault = {"nodes": ["other"], "at": {"metrics": {"loss": 0.0}}, "for": "500ms"}
    document = {
        "name": "measured",
        "workload": {
            "main": {
                "command": [python_of(runtime), "-u", "serve.py"],
                "files": ["serve.py"],
                "ports": {"metrics": 9100},
                "metrics": metrics,
            },
            "other": {"command": ["sleep", "60"]},
        },
        "faults": [{"freeze": fault}],
        "stop": {"metrics": {"rounds": 15.0}},
    }
    up = bed.up("--runtime", runtime, file=bed.scenario("measured.yaml", yaml.safe_dump(document)))
    done = up.end()
    assert done.status in {0, VERDICT}, done.err
    assert up.folder.state().reason == "rounds of main has reached 15: 15"
    summary = json.loads(up.folder.summary.read_text())
    assert summary["metrics"]["rounds"]["count"] >= 14
    assert summary["metrics"]["loss"]["best"]["value"] < 0
    assert summary["nodes"]["main"]["up_bytes"] == 0  # it is read over the loopback interface
    reasons = {
        "endless": "it answered with more than 262,144 bytes",
        "silent": "it did not answer completely within 2 s",
        "closed": "nothing listens there",
    }
    unread = {one["metric"]: one["reason"] for one in events(up) if one["event"] == "metric_unread"}
    for name, reason in reasons.items():
        assert unread[name] == reason
        assert f"The metric {name} of main was never read (main: {reason})" in done.out
    began = [one for one in events(up) if one["event"] == "fault"]
    assert [(one["begins"], one["nodes"]) for one in began] == [
        (True, ["other"]),
        (False, ["other"]),
    ]
    assert bed.remains(up.name) == []


def test_a_study_of_workloads(bed: Any) -> None:
    """Two and three blocks of 100,000 bytes: 1.5 times as many; a changed file is a new run."""
    sender = """\
import os, socket, sys, time
host, _, port = sys.argv[1].rpartition(":")
peer = socket.create_connection((host, int(port)))
for block in range(int(os.environ["BLOCKS"])):
    peer.sendall(bytes(100_000))
    print("block", block + 1, flush=True)
    time.sleep(0.2)
peer.shutdown(socket.SHUT_WR)
"""
    bed.scenario("send.py", sender)
    bed.scenario("serve.py", SERVE.replace("range(2)", "range(1)"))
    programs: dict[str, dict[str, Any]] = {
        "server": {
            "command": [sys.executable, "serve.py", "7000"],
            "files": ["serve.py"],
        },
        "client": {
            "command": [sys.executable, "send.py", "{server:7000}"],
            "files": ["send.py"],
            "environment": {"BLOCKS": "2"},
            "after": {"server": {"listens": 7000}},
            "metrics": {"blocks": {"regex": "block (.+)"}},
        },
    }
    bed.scenario("pair.yaml", yaml.safe_dump({"name": "pair", "workload": programs}))
    measured = ["sent(client)", "last_blocks", "time_to_blocks(2)", "time_to_blocks(3)"]
    more = {"measure": "sent(client)", "ratio": [{"blocks": "three"}, {"blocks": "two"}]}
    levels = {"two": "2", "three": "3"}
    study = {
        "name": "blocks",
        "scenario": "pair.yaml",
        "vary": {
            "blocks": {
                name: f'workload.client.environment.BLOCKS="{n}"' for name, n in levels.items()
            }
        },
        "report": {
            "tables": {"results": {"measures": measured}},
            "figures": {"blocks": {"show": "blocks", "against": "sent"}},
        },
        "expects": {
            "more": {**more, "value": 1.5, "tolerance": 0.05, "source": "x", "basis": "arithmetic"}
        },
    }
    bed.scenario("study.yaml", yaml.safe_dump(study, sort_keys=False))
    swept = bed.run("sweep", "study.yaml")
    assert swept.status in {0, VERDICT}, swept.err
    report = bed.run("report", "study.yaml", "--json").json["tables"]
    assert [(row["blocks"], row["last_blocks"]) for row in report["runs"]] == [
        *(("two", 2), ("three", 3))
    ]
    if swept.status == 0:  # links are not shaped: only a busy host's late end could be invalid
        assert [row["verdict"] for row in report["expectations"]] == ["reproduced"]
        assert report["runs"][0]["time_to_blocks(3)"] == float("inf")
    assert "2 runs, 2 exist already" in bed.run("sweep", "study.yaml").out
    names = [row["run"] for row in report["runs"]]
    assert bed.run("compare", *names).status == 9
    assert bed.run("export", "csv", *names, "--out", "tables").status == 0
    assert len((bed.path / "tables" / names[0] / "metrics.csv").read_text().splitlines()) == 3
    assert bed.run("export", "prometheus", *names, "--out", "all.txt").status == 0
    assert 'metric="blocks"' in (bed.path / "all.txt").read_text()
    bed.scenario("send.py", sender.replace("0.2", "0.1"))
    assert "0 exist already" in bed.run("sweep", "study.yaml", "--only", "two").out
