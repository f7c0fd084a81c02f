"""``testbed down`` on handmade run folders; tests/e2e covers active runs."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from testbed.cli import main
from testbed.telemetry.event_kinds import State
from testbed.telemetry.folder import RunFolder

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


@pytest.fixture(autouse=True)
def somewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)


def make(name: str, state: State) -> RunFolder:
    folder = RunFolder.create(
        Path("runs"), name, scenario="quick", text="", classes=["fast"], now=0.0
    )
    folder.move(state, now=60.0)
    return folder


@pytest.mark.parametrize("arguments", [[], ["good", "--all"]])
def test_run_names_and_all_are_exclusive(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["down", *arguments]) == 2
    assert "Name the runs to stop, or give --all." in capsys.readouterr().err


def test_an_unknown_run_ends_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    folder = make("e2e-made-by-hand", "training")
    assert main(["down", folder.name, "nope"]) == 7
    assert "There is no run named nope" in capsys.readouterr().err
    assert folder.state().state == "training"


def test_a_run_with_a_dead_controller_is_ended_once(capsys: pytest.CaptureFixture[str]) -> None:
    folder = make("e2e-made-by-hand", "training")
    assert main(["down", folder.name]) == 0
    assert capsys.readouterr().out == "e2e-made-by-hand: stopped\n"
    state = folder.state()
    assert (state.state, state.reason) == ("interrupted", "stopped by `testbed down`")
    assert main(["down", folder.name]) == 0
    assert capsys.readouterr().out == "e2e-made-by-hand: nothing to remove\n"


def test_a_damaged_folder_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    folder = make("e2e-made-by-hand", "training")
    folder.run_file.write_text("[]")
    assert main(["down", folder.name]) == 4
    assert f"{folder.run_file}: not a JSON object." in capsys.readouterr().err


def test_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    folder = make("e2e-made-by-hand", "finished")
    assert main(["down", "--json", folder.name]) == 0
    assert json.loads(capsys.readouterr().out) == [
        {
            "run": folder.name,
            "folder": str(folder.path),
            "acted": False,
            "hosts": [],
            "failure": None,
        }
    ]
