"""Programs next to a training: any command as a node, native and in Docker containers."""

from __future__ import annotations

import json
import re
import shutil
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from marks import in_docker_nightly

pytestmark = [pytest.mark.slow]
CROSS_TRAFFIC = Path(__file__).parents[2] / "scenarios" / "cross-traffic.yaml"
LOOK = "import json; from testbed.runtimes.agent.probe import look; print(json.dumps(look()))"
ALIKE = ("capabilities", "writable", "new namespaces", "interfaces")
"""What a program and another node's role have alike."""

SCENARIO, NODE_FAILED, VERDICT = 2, 5, 6
FOREVER = ("--set", "stop.updates=100000000")

TEXT = """\
name: beside
seed: 1
algorithm: asgd
model: digits-cnn
dataset: digits
workers: {count: 2}
programs: PROGRAMS
stop: {updates: 60}
evaluate: {every: 30, images: 100}
"""


@dataclass(frozen=True)
class Ended:
    """A run with a program, after its end.

    Attributes:
        up: the run.
        done: the command.
    """

    up: Any
    done: Any

    @property
    def log(self) -> str:
        """The output of the program."""
        return str(self.up.folder.log("aside").read_text())

    def exits(self, node: str = "aside") -> list[dict[str, Any]]:
        """The end of the program, as in the run's events."""
        lines = self.up.folder.events.read_text().splitlines()
        events = [json.loads(line) for line in lines]
        return [one for one in events if one["event"] == "exited" and one["node"] == node]


NAMES = """\
import json, os, socket
names = [socket.gethostname(), "ps", "w1", "evaluator"]
sizes = [os.statvfs(path) for path in ("/tmp", "/dev/shm")]
print(json.dumps([socket.gethostbyname(name) for name in names]))
print(json.dumps([found.f_blocks * found.f_frsize for found in sizes]))
"""
"""Prints addresses of nodes, and how large what a program may write to is."""

WAITS_TO_BE_TOLD = "until test -e /tmp/told; do sleep 0.1; done"


def with_programs(**programs: dict[str, Any]) -> str:
    """The scenario with these programs, by name."""
    return TEXT.replace("PROGRAMS", json.dumps(programs))


def run(bed: Any, runtime: str, *options: str, **program: Any) -> Ended:
    """A completed run with one program, of which nothing is left."""
    file = bed.scenario("beside.yaml", with_programs(aside=program))
    up = bed.up("--runtime", runtime, *options, file=file)
    ended = Ended(up, up.end())
    assert bed.remains(up.name) == []
    return ended


@pytest.mark.alone
@pytest.mark.skipif(shutil.which("iperf3") is None, reason="needs iperf3: apt install iperf3")
@in_docker_nightly
def test_cross_traffic_is_not_counted_as_training(bed: Any, runtime: str) -> None:
    """10 Mbit/s arrive over a link of 10 Mbit/s and are not counted as training traffic."""
    text = CROSS_TRAFFIC.read_text(encoding="utf-8")
    assert text.count("--time 10;") == 1
    file = bed.scenario("cross-traffic.yaml", text.replace("--time 10;", "--time 4;"))
    options = ("--set", "programs.source.link.up.rate=10mbit", "--set", "stop={time: 8s}")
    up = bed.up("--runtime", runtime, *options, file=file)
    ended = Ended(up, up.end())
    assert ended.done.status in {0, VERDICT}, ended.done.err
    log = up.folder.log("source").read_text()
    (rate,) = re.findall(r"([\d.]+) Mbits/sec .* receiver", log)
    assert 9.0 <= float(rate) <= 10.0  # iperf3 counts no headers
    assert [one["planned"] for one in ended.exits("source")] == [True]
    assert ended.exits("sink") == []
    summary = json.loads(up.folder.summary.read_text())
    ingress = summary["ingress"]
    assert ingress["tcp_bytes"] < 1.1 * ingress["payload_bytes"]
    assert sorted(bed.nodes(up.name)) == sorted(
        ["ps", "evaluator", "sink", "source", *(f"w{i}" for i in range(6))]
    )
    assert "Server listening on 5201" in bed.run("logs", up.name, "sink").out


def test_a_program_is_confined_like_every_node(bed: Any, runtime: str, eventually: Any) -> None:
    python = sys.executable if runtime == "native" else "python"
    script = f"{python} -c '{LOOK}'; exec sleep 1000"
    text = with_programs(aside={"command": ["sh", "-c", script]})
    up = bed.up("--runtime", runtime, *FOREVER, file=bed.scenario("beside.yaml", text))
    up.wait_for_updates(5)
    found = json.loads(eventually(up.folder.log("aside").read_text))  # it may come after updates
    entered = bed.run("exec", up.name, "w0", "--", python, "-c", LOOK)
    worker = json.loads(entered.out)
    assert {name: found[name] for name in ALIKE} == {name: worker[name] for name in ALIKE}
    assert set(found["capabilities"].values()) == {0}
    assert found["limits"]["RLIMIT_CORE"] == [0, 0]
    assert found["status"]["NoNewPrivs"] == ["1"]
    assert found["status"]["Seccomp"] == ["2"]
    assert found["status"]["Uid"] == ["20012"] * 4
    assert found["hostname"] == "aside"
    assert bed.run("exec", up.name, "aside", "--", "hostname").out == "aside\n"
    up.signal(signal.SIGINT)
    assert bed.remains(up.name) == []


@in_docker_nightly
def test_a_missing_program(bed: Any, runtime: str) -> None:
    ended = run(bed, runtime, command=["nonesuch", "--server"], end="noticed")
    assert ended.done.status == NODE_FAILED
    assert "aside: nonesuch: no such program in the node." in ended.done.err
    assert ended.up.folder.state().state == "failed"


def test_exits_of_programs_are_classified(bed: Any, runtime: str) -> None:
    """Four programs exit one after the other; the last one ends the run."""
    ends = {"seen": ("noticed", 3), "well": ("expected", 0), "badly": ("expected", 3)}
    ends["needed"] = ("fatal", 0)
    programs = {
        name: {"command": ["sh", "-c", f"{WAITS_TO_BE_TOLD}; exit {status}"], "end": end}
        for name, (end, status) in ends.items()
    }
    up = bed.up(
        "--runtime", runtime, *FOREVER, file=bed.scenario("ends.yaml", with_programs(**programs))
    )
    up.wait_for_updates(5)
    ended = Ended(up, None)
    for name, (end, _) in ends.items():
        assert bed.run("exec", up.name, name, "--", "touch", "/tmp/told").status == 0
        if end != "fatal":
            up.wait_for(lambda name=name: ended.exits(name))
    done = up.end()
    assert done.status == NODE_FAILED
    assert "needed exited with status 0; it printed nothing." in done.err
    for name, (end, status) in ends.items():
        told = f"{name} exited with status {status}; the other nodes continue" in done.out
        assert told == (end != "fatal" and status != 0)
        assert [one["planned"] for one in ended.exits(name)] == [end != "fatal"]
    assert bed.remains(up.name) == []


@in_docker_nightly
def test_programs_may_end_before_the_training_starts(bed: Any, runtime: str) -> None:
    """Some fail, one inspects its surroundings, and one has a folder mounted."""
    tools = bed.path / "tools"  # below /tmp, which is private to a node
    tools.mkdir()
    (tools / "word").write_text("sesame")
    tool = tools / "tool"
    tool.write_text('#!/bin/sh\ncd "$(dirname "$0")" && cat word && ! touch new && rm -f word\n')
    for path, mode in ((tools, 0o777), (tool, 0o755)):
        path.chmod(mode)
    programs = {
        "aside": {"command": ["python3", "-c", NAMES], "scratch": "64MiB", "end": "expected"},
        "given": {"command": [str(tool)], "folders": [str(tools)], "end": "expected"},
        "noticed": {"command": ["sh", "-c", "exit 3"], "end": "noticed"},
        "expected": {"command": ["sh", "-c", "exit 3"], "end": "expected"},
    }
    file = bed.scenario("early.yaml", with_programs(**programs))
    up = bed.up("--runtime", runtime, file=file)
    ended = Ended(up, up.end())
    assert ended.done.status in {0, VERDICT}, ended.done.err
    assert up.folder.state().state == "finished"
    for name in ("noticed", "expected"):
        assert [(one["status"], one["planned"]) for one in ended.exits(name)] == [(3, True)]

    names, sizes = map(json.loads, ended.log.splitlines())
    assert names == ["10.77.0.4", "10.77.0.1", "10.77.0.3", "127.0.0.1"]
    assert sizes == [64 * 2**20] * 2

    log = up.folder.log("given").read_text()
    assert log.startswith("sesame") and log.count("Read-only file system") == 2
    assert sorted(path.name for path in tools.iterdir()) == ["tool", "word"]
    assert bed.remains(up.name) == []

    shutil.rmtree(tools)
    done = bed.up("--runtime", runtime, file=file).end()
    assert done.status == SCENARIO
    expected = f"programs.given.folders.0: found '{tools}', expected a folder on this host"
    assert f"early.yaml:7: {expected}" in done.err


def test_the_memory_of_a_program_is_limited(bed: Any, runtime: str) -> None:
    python = sys.executable if runtime == "native" else "python"
    greedy = [python, "-c", "print(len(bytes(range(256)) * 2**20))"]
    ended = run(bed, runtime, *FOREVER, command=greedy, memory="48MiB", end="fatal")
    assert ended.done.status == NODE_FAILED
    assert "aside ran out of memory: the kernel killed it at its limit of 48MiB" in ended.done.err


@pytest.mark.root
def test_a_program_hidden_from_nodes_is_reported(bed: Any) -> None:
    tool = bed.path / "tool"  # below /tmp
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    done = run(bed, "native", command=[str(tool)]).done
    assert done.status == NODE_FAILED
    assert f"aside: {tool}: hidden in the node. Nodes have a /tmp" in done.err
    assert "programs.NAME.folders" in done.err
    tool.unlink()
    assert "tool: no such program in the node." in run(bed, "native", command=[str(tool)]).done.err
