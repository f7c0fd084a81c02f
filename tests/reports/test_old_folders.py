"""Run folders of testbed 0.2.0, the first release, are read by this version."""

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
from testbed.reports.remake import remake

FIXTURES = Path(__file__).parent / "fixtures"
NAMES = ("live", "simulated")


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Copies of the folders, in a private working folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return shutil.copytree(FIXTURES, tmp_path / "runs")


def said(result: Result) -> str:
    assert result.exit_code == 0
    return result.output


@pytest.mark.parametrize("name", NAMES)
def test_tables(runs: Path, name: str) -> None:
    run = testbed.Run(runs / name)
    assert list(run.updates["version_applied"]) == list(range(60))
    classes = dict(zip(run.updates["node"], run.updates["device_class"], strict=True))
    assert classes == {"w0": "fast", "w1": "fast", "w2": "slow"}
    assert list(run.evaluations["version"]) == [0, 20, 40, 60]
    assert list(run.evaluations["final"]) == [False, False, False, True]
    events = run.events
    names = list(events["event"])
    assert names.index("started") < names.index("evaluated") < names.index("finished")
    assert set(events.loc[events["event"] == "joined", "node"]) == {"w0", "w1", "w2"}
    assert run.scenario.workers.count == 3


def test_files_that_only_a_live_run_has(runs: Path) -> None:
    run = testbed.Run(runs / "live")
    assert len(run.traffic) == 4
    assert run.traffic["tcp_received_bytes"].iloc[-1] > run.updates["payload_up_bytes"].sum()
    assert run.events.loc[run.events["event"] == "done", "applied"].item() == 60


@pytest.mark.parametrize("name", NAMES)
def test_the_summary_is_unchanged(runs: Path, name: str) -> None:
    before = json.loads((runs / name / "summary.json").read_text())
    assert within(remake(runs / name).summary, before) == before


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
