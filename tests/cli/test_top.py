"""``testbed top`` and ``testbed events`` on run folders and on an active run."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import shutil
import struct
import subprocess
import termios
from collections.abc import Iterator
from fcntl import ioctl
from pathlib import Path
from typing import Any

import pytest

from testbed.cli import main
from testbed.cli.top import keys_of, ordered
from testbed.reports.standing import WorkerStanding

LONGEST_SECONDS = 180.0
FIXTURES = Path(__file__).parents[1] / "reports" / "fixtures"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A private working folder with two runs that have ended."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    shutil.copytree(FIXTURES, tmp_path / "runs")
    return tmp_path


def test_top_of_an_ended_run(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["top", "live"]) == 0
    shown = capsys.readouterr().out
    assert "live  finished: 60 updates applied" in shown
    assert "workers by age: 3 of 3" in shown
    assert re.search(r"slow +1 of 1", shown)
    assert "1mbit (1)" in shown  # configured, and measured in mbit/s


@pytest.mark.parametrize("name", ["live", "simulated"])
def test_as_json(here: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    assert main(["top", name, "--once", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    summary = json.loads((here / "runs" / name / "summary.json").read_text())
    assert found["updates"] == summary["updates"]["total"] == 60
    assert {one["name"]: one["updates"] for one in found["classes"]} == summary["updates"][
        "by_class"
    ]
    assert found["accuracy"] == summary["accuracy"]["final"]
    assert found["server"]["payload_in_bytes"] == summary["ingress"]["payload_bytes"]
    assert len(found["workers"]) == 3
    assert {one["state"] for one in found["workers"]} == {"running"}


def worker(node: str, **values: Any) -> WorkerStanding:
    empty = dict.fromkeys(WorkerStanding.__dataclass_fields__)
    return WorkerStanding(**{**empty, "node": node, **values})  # type: ignore[arg-type]


def test_the_stalest_workers_are_first_and_silent_ones_last() -> None:
    workers = [worker("w1", age_seconds=1.0), worker("w10"), worker("w2", age_seconds=5.0)]
    assert [one.node for one in ordered(workers, "age", reverse=False)] == ["w2", "w1", "w10"]
    assert [one.node for one in ordered(workers, "age", reverse=True)] == ["w1", "w2", "w10"]
    assert [one.node for one in ordered(workers, "node", reverse=False)] == ["w1", "w2", "w10"]


def test_events_by_kind_and_node(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["events", "live"]) == 0
    lines = (here / "runs/live/events.jsonl").read_text().splitlines()
    assert len(capsys.readouterr().out.splitlines()) == len(lines)
    assert main(["events", "live", "--kind", "joined", "--node", "class=slow", "--json"]) == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(one["event"], one["node"]) for one in found] == [("joined", "w2")]
    assert main(["events", "live", "--kind", "rate"]) == 0
    assert 'link="class fast up" configured_bits_per_second=10000000.0' in capsys.readouterr().out


def test_an_unknown_kind_or_node(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["events", "live", "--kind", "fualt"]) == 2
    assert "Did you mean fault?" in capsys.readouterr().err
    assert main(["events", "live", "--node", "w99"]) == 2
    assert "w0 to w2" in capsys.readouterr().err
    assert main(["top", "lvie"]) == 7
    assert "Did you mean live?" in capsys.readouterr().err


class Terminal:
    """A command in a terminal of the test."""

    def __init__(self, bed: Any, *words: str) -> None:
        self.ours, theirs = pty.openpty()
        self.resize(40, 140)
        environment = {**bed.environment, "TERM": "xterm"}
        self.process = subprocess.Popen(
            bed.words(*words), env=environment, stdin=theirs, stdout=theirs, stderr=theirs
        )
        os.close(theirs)
        self.seen = ""

    def resize(self, rows: int, columns: int) -> None:
        ioctl(self.ours, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def read_until(self, pattern: str) -> str:
        """Read until the pattern appears; returns the output up to it."""
        while not (found := re.search(pattern, self.seen, re.DOTALL)):
            ready, _, _ = select.select([self.ours], [], [], LONGEST_SECONDS)
            assert ready, f"timed out waiting for {pattern}: {self.seen[-2000:]}"
            self.seen += os.read(self.ours, 65536).decode(errors="replace")
        before, self.seen = self.seen[: found.end()], self.seen[found.end() :]
        return before

    def press(self, key: str) -> None:
        os.write(self.ours, key.encode())

    def end(self) -> int:
        """Read the rest; returns the exit status."""
        try:
            while os.read(self.ours, 65536):
                pass
        except OSError:  # the other end was closed
            pass
        os.close(self.ours)
        return self.process.wait(60)


@pytest.fixture
def going_on(bed: Any, name: str) -> Iterator[str]:
    """A detached run that is stopped until it is ended, with one frozen worker."""
    still = "faults=[{freeze: {workers: [w1], at: {time: 500ms}, for: 1h}}]"
    longer = ("--set", "stop.updates=100000", "--set", still)
    bed("up", bed.scenario, "--detach", "--name", name, *longer)
    yield name
    bed("down", name)


@pytest.mark.root
@pytest.mark.slow
def test_top_events_and_report_of_an_active_run(bed: Any, going_on: str, tmp_path: Path) -> None:
    """One live run for all: top on a terminal and as JSON, events to the end, the report."""
    events = bed.start("events", going_on, "--follow", "--json")
    top = Terminal(bed, "top", going_on)
    top.read_until("workers by age: 2 of 2")
    top.read_until("frozen")
    top.press("s")
    top.read_until("workers by staleness: 2 of 2")
    top.resize(14, 60)
    top.press("r")
    top.read_until("workers by staleness, reversed")
    top.press("q")
    assert top.end() == 0

    def status() -> dict[str, Any]:
        found: dict[str, Any] = json.loads(bed("top", going_on, "--once", "--json").stdout)
        return found

    first = status()
    assert first["updates"] > 0
    bed.wait_until(lambda: status()["updates"] > first["updates"])
    second = status()
    assert second["alive"]
    assert [one["state"] for one in second["workers"]] == ["running", "frozen"]
    assert second["workers"][1]["age_seconds"] > first["workers"][1]["age_seconds"]
    assert second["server"]["sockets"] == 2

    bed("report", going_on, "--html", tmp_path / "report.html")
    assert "freeze" in (tmp_path / "report.html").read_text()
    bed("down", going_on)
    told, _ = events.communicate(timeout=60)
    names = [json.loads(line)["event"] for line in told.splitlines()]
    written = (bed.runs / going_on / "events.jsonl").read_text().splitlines()
    assert names == [json.loads(line)["event"] for line in written]
    assert {"started", "fault", "state"} <= set(names)


def test_keys_typed_at_once_all_take_effect() -> None:
    controller, terminal = pty.openpty()
    try:
        with keys_of(terminal) as pressed:
            os.write(controller, b"rq")
            assert pressed(10.0) == "rq"
            assert pressed(0.0) == ""
    finally:
        os.close(controller)
        os.close(terminal)
