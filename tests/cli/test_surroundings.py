"""Unusable limits, folders, paths and outputs: one line and the right exit code."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from testbed.cli import main

PACKAGE_ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    "arguments",
    [
        ["wait", "some", "--timeout", "nan"],
        ["wait", "some", "--timeout", "-1"],
        ["wait", "some", "--timeout", "inf"],
        ["compare", "one", "two", "--tolerance", "nan"],
        ["compare", "one", "two", "--tolerance", "-0.1"],
        ["compare", "one", "two", "--accuracy", "nan"],
        ["report", "some", "--scale", "nan"],
    ],
)
def test_an_invalid_number_is_refused(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    assert f"Invalid value for '{arguments[-2]}'" in capsys.readouterr().err


def test_a_deleted_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert main(["ps"]) == 3
    assert capsys.readouterr().err == (
        "the current folder does not exist: No such file or directory.\n  It may have been "
        "deleted: cd to a folder that exists.\n"
    )


def test_paths_that_are_not_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["ps", "--runs", os.fsdecode(b"a\xff")]) == 2
    assert "is not valid UTF-8: rename it." in capsys.readouterr().err
    folder = tmp_path / os.fsdecode(b"b\xff")
    folder.mkdir()
    monkeypatch.chdir(folder)
    assert main(["ps"]) == 3
    assert "is not valid UTF-8." in capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("ulimit -n 9; exec testbed up quickstart", "`ulimit -n` is 9; a run needs at least"),
        ("ulimit -v 900000; exec testbed up quickstart", "`ulimit -v` is 900,000; a run needs"),
        ("ulimit -n 70; exec testbed up quickstart", "`ulimit -Hn` is 70, but a run of 14 nodes"),
        ("exec testbed ps > /dev/full", "writing: No space left on device."),
    ],
)
def test_a_host_without_a_requirement(command: str, told: str, tmp_path: Path) -> None:
    words = f"{sys.executable} -P -m testbed"
    done = subprocess.run(
        ["sh", "-c", command.replace("testbed ", f"{words} ", 1)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(PACKAGE_ROOT), "XDG_STATE_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 3
    message, *hint = done.stderr.splitlines()
    assert message.startswith(told)
    assert len(hint) <= 1
    assert not (tmp_path / "runs").exists()


def test_a_list_of_runs_that_cannot_be_created(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", "/dev/null/x")
    assert main(["up", "quickstart", "--runtime", "simulated"]) == 3
    message, *hint = capsys.readouterr().err.splitlines()
    assert message.startswith("/dev/null/x/testbed/runs, the list of your runs, cannot be created")
    assert len(hint) <= 1
    assert not (tmp_path / "runs").exists()
