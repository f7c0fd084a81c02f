"""Real runs of the command line, in folders of the test."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from polling import LONGEST_SECONDS, wait_until
from warm_commands import CommandRunner

PACKAGE_ROOT = Path(__file__).parents[2]

TINY = """
name: tiny
seed: 1
algorithm: {asgd: {learning_rate: 0.1}}
model: digits-cnn
dataset: {digits: {partition: iid}}
workers:
  count: 2
  batch_size: 10
  classes:
    fast: {speed: 20ms}
stop: {updates: 60}
evaluate: {every: 30, images: 100}
"""


class Bed:
    """The command ``testbed`` with the test's own registry, runs and scenario."""

    def __init__(self, folder: Path, run_command: CommandRunner) -> None:
        self.folder = folder
        self.run_command = run_command
        self.runs = folder / "runs"
        self.scenario = folder / "tiny.yaml"
        self.scenario.write_text(TINY)
        self.started: list[subprocess.Popen[str]] = []
        self.environment = {
            **os.environ,
            "XDG_STATE_HOME": str(folder / "state"),
            "PYTHONPATH": str(PACKAGE_ROOT),
        }

    def words(self, verb: str, *words: str | Path) -> list[str]:
        """The command line of a verb that accepts ``--runs``."""
        options = ["--runs", str(self.runs)]
        return [sys.executable, "-P", "-m", "testbed", verb, *options, *map(str, words)]

    def __call__(
        self,
        verb: str,
        *words: str | Path,
        status: int | tuple[int, ...] = 0,
        timeout: float = LONGEST_SECONDS,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command, and expect an exit status, or one of several."""
        expected = (status,) if isinstance(status, int) else status
        arguments = [verb, "--runs", str(self.runs), *map(str, words)]
        done = self.run_command(
            arguments, cwd=Path.cwd(), environment=self.environment, timeout=timeout
        )
        assert done.returncode in expected, f"{done.stdout}\n{done.stderr}"
        return done

    def start(self, verb: str, *words: str | Path) -> subprocess.Popen[str]:
        """Start a command without waiting for it."""
        started = subprocess.Popen(
            self.words(verb, *words),
            env=self.environment,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self.started.append(started)
        return started

    def verdict(self, run: str) -> int:
        """The exit status for a run's verdict; other tests may keep the host busy."""
        summary = json.loads((self.runs / run / "summary.json").read_text())
        return 0 if summary["verdict"]["valid"] else 6

    def state(self, run: str) -> str:
        """The contents of ``run.json``."""
        state: str = json.loads((self.runs / run / "run.json").read_text())["state"]
        return state

    def wait_until(self, look: Callable[[], Any]) -> Any:
        """Poll until the result is true."""
        return wait_until(look, self.last_events)

    def last_events(self) -> list[str]:
        """The last event of each run."""
        return [file.read_text().splitlines()[-1] for file in self.runs.glob("*/events.jsonl")]

    def wait_until_training(self, run: str) -> None:
        """Wait until a run trains."""
        file = self.runs / run / "run.json"
        self.wait_until(lambda: file.exists() and self.state(run) == "training")

    def controller(self, run: str) -> int:
        """The pid of the process that holds the run's lock."""
        return int((self.runs / run / "control" / "lock").read_text().split()[0])

    def leftovers(self, run: str) -> list[str]:
        """Processes and control groups that name a run."""
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            try:
                text = (process / "cmdline").read_bytes() + (process / "cgroup").read_bytes()
            except OSError:
                continue  # it has just ended
            if f"/{run}".encode() in text:
                found.append(process.name)
        groups = Path("/sys/fs/cgroup").glob(f"**/testbed/{run}")
        return found + [str(path) for path in groups]


@pytest.fixture
def bed(tmp_path: Path, run_command: CommandRunner) -> Iterator[Bed]:
    """The command; ends this test's remaining runs afterwards."""
    bed = Bed(tmp_path, run_command)
    yield bed
    if bed.runs.is_dir():
        for run in sorted(path.parent for path in bed.runs.glob("*/run.json")):
            bed("down", run)
    for started in bed.started:  # a failed test has not waited for them
        with started:
            started.kill()


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A name that no other concurrent test uses for its run."""
    return f"t{os.getpid()}-{abs(hash(request.node.name)) % 10**6}"
