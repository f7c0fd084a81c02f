"""``testbed ps`` on handmade run folders; tests/e2e covers active runs."""

from __future__ import annotations

import fcntl
import io
import json
import os
from pathlib import Path
from typing import Any

import pytest

from testbed.cli import main
from testbed.plan.make import plan
from testbed.plan.written import plan_text
from testbed.reports.console import Console, Table
from testbed.scenario import load_text
from testbed.telemetry.event_kinds import State
from testbed.telemetry.folder import RunFolder

TEXT = """\
name: quick
algorithm: asgd
model: digits-cnn
dataset: digits
workers: {count: 2, classes: {fast: {share: 0.5}, slow: {share: 0.5}}}
stop: {updates: 1}
"""
NOON = 1_767_268_800.0  # 2026-01-01T12:00:00Z


@pytest.fixture(autouse=True)
def somewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)


def make(name: str, state: State) -> RunFolder:
    folder = RunFolder.create(
        Path("runs"),
        name,
        scenario="quick",
        text="",
        classes=["fast", "slow"],
        now=NOON,
        plan=plan_text(plan(load_text(TEXT), name)),
    )
    if state != "created":
        folder.move(state, now=NOON + 60)
    return folder


def listed(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    assert main(["ps", "--json", *arguments]) == 0
    return json.loads(capsys.readouterr().out)


def test_an_empty_list_says_what_to_type(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ps"]) == 0
    assert "`testbed ps --all`" in capsys.readouterr().out
    assert listed(capsys) == []


def test_ended_runs_are_listed_on_request(capsys: pytest.CaptureFixture[str]) -> None:
    folder = make("good", "finished")
    assert listed(capsys) == []
    assert listed(capsys, "--all") == [
        {
            "run": "good",
            "state": "finished",
            "workers": 2,
            "created": "2026-01-01T12:00:00.000Z",
            "folder": str(folder.path),
        }
    ]


def test_a_run_is_active_while_its_lock_is_held(capsys: pytest.CaptureFixture[str]) -> None:
    folder = make("live", "training")
    lock = os.open(folder.lock, os.O_RDWR | os.O_CREAT)
    fcntl.flock(lock, fcntl.LOCK_EX)
    assert [row["state"] for row in listed(capsys)] == ["training"]
    os.close(lock)
    states = [row["state"] for row in listed(capsys)]
    assert states == ["training, but its controller has died"]


def test_a_damaged_run_does_not_hide_the_others(capsys: pytest.CaptureFixture[str]) -> None:
    make("a-good", "training")
    make("b-bad", "training").run_file.write_text("{")
    good, bad = listed(capsys)
    assert (good["run"], good["workers"]) == ("a-good", 2)
    assert (bad["run"], bad["workers"]) == ("b-bad", None)
    assert "run.json: not JSON" in bad["state"]


def test_a_damaged_run_does_not_fill_the_list(capsys: pytest.CaptureFixture[str]) -> None:
    folder = make("broken", "training")
    folder.run_file.write_text('{"format": ' + "9" * 4000 + "}")
    (row,) = listed(capsys)
    assert len(row["state"]) < 200


def test_the_nodes_of_an_ended_run(capsys: pytest.CaptureFixture[str]) -> None:
    make("good", "finished")
    rows = listed(capsys, "good")
    assert [row["node"] for row in rows] == ["ps", "evaluator", "w0", "w1"]
    assert rows[3] == {"node": "w1", "class": "slow", "condition": "ended", "pid": None}
    assert main(["ps", "good"]) == 0
    assert "evaluator" in capsys.readouterr().out


def test_the_nodes_of_an_old_run_without_a_plan(
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = make("old", "finished")
    folder.plan.unlink()
    folder.scenario.write_text(TEXT)
    assert [row["node"] for row in listed(capsys, "old")] == ["ps", "evaluator", "w0", "w1"]


def test_a_truncated_plan(capsys: pytest.CaptureFixture[str]) -> None:
    folder = make("bad", "finished")
    folder.plan.write_text(folder.plan.read_text()[:300])
    assert main(["ps", "bad"]) == 4
    assert capsys.readouterr().err.startswith(
        f"{folder.plan}: not a valid plan: not valid JSON, or truncated ("
    )
    assert [row["run"] for row in listed(capsys, "--all")] == ["bad"]


def test_an_unknown_run(capsys: pytest.CaptureFixture[str]) -> None:
    make("good", "finished")
    assert main(["ps", "goof"]) == 7
    assert capsys.readouterr().err.splitlines() == [
        "There is no run named goof (searched runs and "
        f"{os.environ['XDG_STATE_HOME']}/testbed/runs).",
        "  Did you mean good?",
    ]


def test_names_are_not_truncated_in_a_pipe(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    folder = make("a-name-of-a-run-that-is-as-long-as-a-name-of-a-run-may-be-60", "finished")
    assert main(["ps", "--all"]) == 0
    assert f"{folder.name}   finished" in capsys.readouterr().out


def test_names_are_not_truncated_on_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "a-name-of-a-run-that-is-as-long-as-a-name-of-a-run-may-be-60"
    out = io.StringIO()
    table = Table("run", "folder")
    table.add_row(name, f"/somewhere/{name}")
    Console(file=out, force_terminal=True, width=60, color_system=None).print(table)
    cells = [line.split("│") for line in out.getvalue().splitlines() if "│" in line]
    assert "".join(cell[1].strip() for cell in cells) == name
    assert "".join(cell[2].strip() for cell in cells) == f"/somewhere/{name}"
