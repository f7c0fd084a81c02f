"""``testbed report``, from its arguments to what it prints."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from testbed.cli.report import report as command
from testbed.errors import RunNotFound
from testbed.telemetry.folder import RunFolder


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A private working folder with its own registry."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path


def report(*arguments: str) -> Result:
    return CliRunner().invoke(command, arguments, catch_exceptions=False)


def test_by_name_and_by_path(here: Path, folder: RunFolder) -> None:
    for arguments in (["tiny-1"], ["tiny-1", "--runs", f"{here}/runs"], ["runs/tiny-1"]):
        result = report(*arguments)
        assert result.exit_code == 0
        assert "tiny: tiny-1" in result.output
        assert f"figure: {folder.figure}" in result.output
        assert f"folder: {folder.path}" in result.output


def test_as_json(here: Path, folder: RunFolder) -> None:
    assert json.loads(report("tiny-1", "--json").output) == json.loads(folder.summary.read_text())


def test_an_unknown_run(here: Path, folder: RunFolder) -> None:
    with pytest.raises(RunNotFound, match=r"Did you mean tiny-1\?"):
        report("tiny-2")


def test_a_misspelt_study_is_suggested_unless_a_run_is_nearer(
    here: Path, folder: RunFolder
) -> None:
    with pytest.raises(RunNotFound) as unknown:
        report("federated/studi")
    assert unknown.value.hint == "Did you mean federated/study?"
    with pytest.raises(RunNotFound) as nearer:
        report("tiny-2")
    assert nearer.value.hint == "Did you mean tiny-1?"
