"""Run folders of an earlier testbed can be read: two of its quickstart, truncated.

They were made at commit 7ab4e61, one live and one simulated, without figures, logs and sockets.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import testbed
from testbed.cli.report import compare, report
from testbed.cli.runs import ps
from testbed.reports.frames import Run
from testbed.reports.remake import remake
from testbed.telemetry.folder import RunFolder
from testbed.telemetry.recovery import Recovered, recover

OLD = Path(__file__).parent / "fixtures" / "7ab4e61"
NAMES = ("live", "simulated")


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Copies of the old folders, in a private working folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return shutil.copytree(OLD, tmp_path / "runs")


def said(result: Result) -> str:
    assert result.exit_code == 0
    return result.output


@pytest.mark.parametrize("name", NAMES)
def test_tables(runs: Path, name: str) -> None:
    run = testbed.Run(runs / name)
    assert len(run.updates) == 150
    assert list(run.updates["version_applied"]) == list(range(150))
    assert set(run.updates["device_class"]) == {"fast", "medium", "slow"}
    assert set(run.updates["steps"]) == {1}  # these columns did not exist yet
    assert set(run.updates["messages"]) == {0}
    assert list(run.evaluations["version"]) == [0, 50, 100, 150]
    assert list(run.evaluations["final"]) == [False, False, False, True]
    events = list(run.events["event"])
    assert events.index("started") < events.index("evaluated") < events.index("finished")
    assert run.scenario.workers.count == 12


def test_files_that_only_a_live_run_has(runs: Path) -> None:
    run = Run(runs / "live")
    assert len(run.traffic) == 4
    assert run.traffic["tcp_received_bytes"].iloc[-1] > run.updates["payload_up_bytes"].sum()
    events = run.events
    assert set(events.loc[events["event"] == "joined", "node"]) == {f"w{i}" for i in range(12)}
    assert events.loc[events["event"] == "done", "applied"].item() == 150


@pytest.mark.parametrize("name", NAMES)
def test_the_summary_is_unchanged(runs: Path, name: str) -> None:
    before = json.loads((runs / name / "summary.json").read_text())
    after = remake(runs / name).summary
    reworded = {"how busy the host was": "the load of the host"}
    unchecked = [reworded.get(one, one) for one in before["verdict"]["unchecked"]]
    before["verdict"]["unchecked"] = [*unchecked, "gaps in the nodes' execution"]  # a newer rule
    assert within(after, before) == before


def within(after: Any, before: Any) -> Any:
    """The part of a summary that the older one has too."""
    if not isinstance(before, dict):
        return after
    return {key: within(after[key], value) for key, value in before.items()}


def test_commands(runs: Path) -> None:
    assert json.loads(said(CliRunner().invoke(report, ["live", "--json"])))["state"] == "finished"
    assert "SIMULATED" in said(CliRunner().invoke(report, ["simulated"]))
    assert "payload of a push" in said(CliRunner().invoke(compare, NAMES))
    listed = said(CliRunner().invoke(ps, ["--all"]))
    assert all(name in listed for name in NAMES)


def test_a_folder_left_by_a_killed_controller_is_completed(runs: Path) -> None:
    folder = RunFolder(runs / "live")
    evaluations, events = folder.evaluations.read_bytes(), folder.events.read_bytes()
    for path, kept in ((folder.evaluations, 3), (folder.events, 60)):
        lines = path.read_bytes().splitlines(keepends=True)
        path.write_bytes(b"".join(lines[:kept]) + b"half a li")
    lost = sum(b'"source": "ps"' in line for line in events.splitlines()[60:])
    (folder.updates / "part-0000.parquet").unlink()
    before = Run(OLD / "live").updates
    assert recover(folder, time_scale=1.0) == Recovered(updates=150, evaluations=2, events=lost)
    assert Run(folder.path).updates.equals(before)
    assert folder.evaluations.read_bytes() == evaluations
