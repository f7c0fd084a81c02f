"""Every family grows by one file and its entry in a list; no other file of the package changes.

Each test copies the package to a temporary folder, adds a member, and uses it as a user would.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

import testbed

PACKAGE = Path(testbed.__file__).parent
LONGEST_SECONDS = 180.0

SCENARIO = """\
name: grown
runtime: simulated
algorithm: asgd
model: digits-cnn
dataset: digits
workers: {count: 2, batch_size: 10, classes: {fast: {speed: 20ms}}}
stop: {updates: 20}
evaluate: {every: 20, images: 100}
"""


class Copy:
    """A copy of the package, and a folder with a scenario in which it is used."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.package = folder / "copy" / "testbed"
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(PACKAGE, self.package, ignore=ignored)
        (folder / "scenario.yaml").write_text(SCENARIO)

    def change(self, old: str, new: str) -> None:
        """Write the scenario with one change."""
        assert old in SCENARIO
        (self.folder / "scenario.yaml").write_text(SCENARIO.replace(old, new))

    def add(self, file: str, text: str) -> None:
        """Add a file."""
        path = self.package / file
        assert not path.exists()
        path.parent.mkdir(exist_ok=True)
        path.write_text(dedent(text))

    def enter(self, file: str, member: str, *, before: str, entry: str) -> None:
        """Import a member (``module.Name``) in its family's list, and add its entry there."""
        path = self.package / file
        module, _, name = member.rpartition(".")
        head, imports, rest = path.read_text().partition("\nfrom testbed.")
        assert before in rest, f"{before!r} in {file}"
        rest = rest.replace(before, entry + before, 1)
        path.write_text(f"{head}\nfrom testbed.{module} import {name}{imports}{rest}")

    def __call__(self, *words: str, status: int | None = 0) -> str:
        """Run testbed; returns its output. It must exit with ``status``; None allows any."""
        done = subprocess.run(
            [sys.executable, "-P", "-m", "testbed", *words],
            cwd=self.folder,
            env={
                **os.environ,
                "PYTHONPATH": str(self.package.parent),
                "XDG_STATE_HOME": str(self.folder / "state"),
            },
            capture_output=True,
            text=True,
            check=False,
            timeout=LONGEST_SECONDS,
        )
        assert status in (done.returncode, None), f"{done.stdout}\n{done.stderr}"
        return done.stdout + done.stderr

    def train(self) -> Any:
        """Run the scenario; returns its summary."""
        self("up", "scenario.yaml", "--name", "r")
        return json.loads(self("report", "r", "--json"))


@pytest.fixture
def copy(tmp_path: Path) -> Copy:
    return Copy(tmp_path)
