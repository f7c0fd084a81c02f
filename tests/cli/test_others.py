"""Runs of other users are shown as theirs and never touched."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from testbed.cli import main
from testbed.plan.make import plan
from testbed.plan.written import plan_text
from testbed.scenario import load_text
from testbed.telemetry.folder import RunFolder

pytestmark = pytest.mark.root

TEXT = """\
name: quick
algorithm: asgd
model: digits-cnn
dataset: digits
workers: {count: 2}
stop: {updates: 1}
"""
SOMEBODY = 54321


@contextmanager
def somebody() -> Iterator[None]:
    """Run the block with another user's rights."""
    os.seteuid(SOMEBODY)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Root's runs in a shared folder: an active, a damaged and a closed one."""
    with tempfile.TemporaryDirectory() as name:
        runs = Path(name, "runs")
        monkeypatch.setenv("XDG_STATE_HOME", f"{name}/state")
        for run in ("training", "damaged", "closed"):
            folder = RunFolder.create(
                *(runs, run),
                scenario="quick",
                text=TEXT,
                classes=["default", "default"],
                now=0.0,
                plan=plan_text(plan(load_text(TEXT), run)),
            )
            folder.move("training", now=0.0)
            folder.control.chmod(0o700)
        (runs / "damaged/run.json").write_text("{")
        (runs / "closed").chmod(0o700)
        Path(name).chmod(0o755)
        used = (["ps"], ["net", "show", "training"], ["down", "training"])
        for command in (*used, ["report", "damaged"], ["resume", "damaged"]):
            main([*command, "--runs", str(runs)])  # so that nothing has to be imported below
        RunFolder(runs / "training").move("training", now=0.0)
        yield runs


def test_runs_of_others_do_not_fill_ps(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def listed(*options: str) -> dict[str, Any]:
        capsys.readouterr()
        assert main(["ps", "--json", "--runs", str(runs), *options]) == 0
        return {row["run"]: row["state"] for row in json.loads(capsys.readouterr().out)}

    assert listed().keys() == {"training", "damaged", "closed"}
    with somebody():
        assert listed() == {"training": "training"}
        assert listed("--all")["damaged"] == "another user's, not readable"


@pytest.mark.parametrize("run", ["training", "closed"])
@pytest.mark.parametrize("command", [["ps"], ["net", "show"], ["down"], ["wait"]])
def test_runs_of_others_are_not_touched(
    runs: Path, capsys: pytest.CaptureFixture[str], command: list[str], run: str
) -> None:
    capsys.readouterr()
    with somebody():
        assert main([*command, run, "--runs", str(runs)]) == 3
    told = f"{runs / run} is not yours: the run belongs to user 0.\n"
    assert told in capsys.readouterr().err


def test_an_unreadable_folder_of_the_user(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The error is about its permissions, not its owner."""
    run = runs / "closed"
    os.chown(run, SOMEBODY, -1)
    run.chmod(0)
    capsys.readouterr()
    with somebody():
        for command in ("wait", "report", "resume"):
            assert main([command, "closed", "--runs", str(runs)]) == 3
    told = f"{run} is yours, but its permissions do not let you read it (mode 000).\n"
    assert capsys.readouterr().err.count(f"{told}  chmod -R u+rwX {run}\n") == 3
    run.chmod(0o755)
    (run / "run.json").chmod(0o200)
    with somebody():
        assert main(["report", "closed", "--runs", str(runs)]) == 3
    told = f"{run / 'run.json'} is yours, but its permissions do not let you read it (mode 200).\n"
    assert told in capsys.readouterr().err
