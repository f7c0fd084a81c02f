"""Run folders with missing files, as after a kill: every command reports them clearly."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from testbed.cli import main
from testbed.plan.make import plan
from testbed.plan.written import plan_text
from testbed.scenario import load_text
from testbed.telemetry.folder import RunFolder

NAME = "e2e-made-by-hand"
TEXT = """\
name: quick
algorithm: asgd
model: digits-cnn
dataset: digits
workers: {count: 2}
stop: {updates: 10}
"""
PARTS = ["scenario.yaml", "plan.json", "updates", "logs", "ps", "control"]


@pytest.fixture(autouse=True)
def somewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)


def without(part: str) -> RunFolder:
    """A run that was created and not started, without this part of its folder."""
    folder = RunFolder.create(
        Path("runs"),
        NAME,
        scenario="quick",
        text=TEXT,
        classes=["default"] * 2,
        now=0.0,
        plan=plan_text(plan(load_text(TEXT), NAME)),
    )
    lost = folder.path / part
    shutil.rmtree(lost) if lost.is_dir() else lost.unlink()
    return folder


@pytest.mark.parametrize("part", PARTS)
def test_an_incomplete_run_is_listed(part: str, capsys: pytest.CaptureFixture[str]) -> None:
    without(part)
    assert main(["ps", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["run"], row["state"]) == (NAME, "created, but its controller has died")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
@pytest.mark.parametrize("part", PARTS)
def test_an_incomplete_run_is_ended(part: str, capsys: pytest.CaptureFixture[str]) -> None:
    folder = without(part)
    assert main(["down", NAME]) == 0
    assert capsys.readouterr().out == f"{NAME}: stopped\n"
    assert folder.state().state == "interrupted"
    assert main(["ps", NAME]) == 0


@pytest.mark.parametrize("part", PARTS[1:])
def test_an_incomplete_run_is_reported(part: str, capsys: pytest.CaptureFixture[str]) -> None:
    without(part)
    assert main(["report", NAME, "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["updates"]["total"] == 0
    assert summary["verdict"]["reasons"] == [
        "The run did not finish: its controller died in state created. Run the scenario again."
    ]


def test_without_its_scenario_a_run_cannot_be_reported(capsys: pytest.CaptureFixture[str]) -> None:
    folder = without("scenario.yaml")
    assert main(["report", NAME]) == 4
    assert (
        f"{folder.scenario}: not the scenario of a run: found no such file"
        in capsys.readouterr().err
    )


@pytest.mark.parametrize("command", [["ps", NAME], ["report", NAME], ["down", NAME]])
def test_a_folder_without_state_is_not_a_run(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = without("run.json")
    assert main(command) == 7
    assert capsys.readouterr().err.splitlines() == [
        f"{folder.path} is not a run folder: it has no run.json.",
        "  `testbed ps --all` lists the runs.",
    ]
    assert main(["ps", "--all", "--json"]) == 0
    assert capsys.readouterr().out == "[]\n"
