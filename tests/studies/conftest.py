"""A small study, and runs of it with numbers chosen by hand, written through the Recorder."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from polling import LONGEST_SECONDS, wait_until
from warm_commands import Command, CommandRunner

from testbed.scenario import dump
from testbed.studies.study import StudyRun
from testbed.telemetry.event_kinds import State, StateChanged
from testbed.telemetry.folder import RunFolder
from testbed.telemetry.ps_events import Evaluated, Finished, Started
from testbed.telemetry.record import Clock, Recorder
from testbed.telemetry.rows import UPDATE

NOON = 1_767_268_800.0

BASE = """\
name: base
runtime: simulated
algorithm: {asgd: {learning_rate: 0.1}}
model: digits-cnn
dataset: digits
workers: {count: 2, batch_size: 10, classes: {fast: {speed: 20ms}}}
stop: {updates: 60}
evaluate: {every: 20, images: 100}
"""

STUDY = """\
name: rates
scenario: base.yaml
vary:
  rate: [algorithm.learning_rate=0.1, algorithm.learning_rate=0.01]
  workers:
    two: workers.count=2
    four: [workers.count=4, workers.batch_size=5]
seeds: [1, 2]
"""

WriteStudy = Callable[..., Path]


@pytest.fixture
def write_study(tmp_path: Path) -> WriteStudy:
    """Writes a study next to its base, followed by the given text."""

    def write(more: str = "", *, text: str = STUDY, name: str = "study.yaml") -> Path:
        (tmp_path / "base.yaml").write_text(BASE)
        file = tmp_path / name
        file.write_text(text + more)
        return file

    return write


@pytest.fixture(name="write_run")
def run_writer() -> Callable[..., RunFolder]:
    """Writes the folder of a study's run; see ``write_run``."""
    return write_run


def write_run(
    run: StudyRun,
    runs: Path,
    top1: Sequence[float],
    *,
    state: State = "finished",
    name: str | None = None,
    updates: int = 4,
    final: bool = True,
) -> RunFolder:
    """A run of a study, evaluated every 20 updates, 2 s and 1 MB, and by default at the end.

    Args:
        run: the run.
        runs: folder of runs.
        top1: the evaluations during training.
        state: its final state.
        name: of its folder; by default as in a sweep.
        updates: number of rows in the record of updates; a run without any is not valid.
        final: whether it is evaluated at the end.
    """
    count = run.scenario.workers.count
    folder = RunFolder.create(
        runs,
        name or run.base_name,
        scenario=run.scenario.name,
        text=dump(run.scenario),
        classes=["fast"] * count,
        now=NOON,
    )
    rows = np.zeros(updates, UPDATE)
    rows["time_seconds"] = np.arange(updates) + 1
    rows["payload_up_bytes"] = 1000
    clock = Clock(wall=lambda: NOON, steady=lambda: 0.0)
    with Recorder.into(folder, time_scale=1.0, clock=clock) as recorder:
        recorder.event(StateChanged("training"))
        recorder.event(Started())
        recorder.updates(rows)
        for index, share in enumerate([*top1, *top1[-1:]] if final else top1, start=1):
            recorder.event(evaluated(index, share, final=index > len(top1)))
        recorder.event(Finished("60 updates applied", updates))
        recorder.event(StateChanged(state, "60 updates applied"))
    ended = NOON + 60
    os.utime(folder.events, (ended, ended))
    return folder


def evaluated(index: int, share: float, *, final: bool) -> Any:
    return Evaluated(
        time_seconds=2.0 * index,
        version=20 * index,
        payload_up_bytes=1_000_000 * index,
        loss=1 - share,
        metrics={"top1": share, "top5": 1.0},
        images=100,
        final=final,
    )


ROOT = Path(__file__).parents[2]


class Sweeps:
    """``testbed`` in a folder of the test."""

    def __init__(self, folder: Path, run_command: CommandRunner) -> None:
        self.folder = folder
        self.runs = folder / "runs"
        self.started: list[Command] = []
        self.environment = {
            **os.environ,
            "XDG_STATE_HOME": str(folder / "state"),
            "PYTHONPATH": str(ROOT),
        }
        self._run_command = run_command

    def __call__(self, verb: str, *words: str, status: int = 0) -> str:
        """Run a command, and expect an exit status; returns its output."""
        done = self._run_command(
            [verb, "--runs", str(self.runs), *words],
            cwd=self.folder,
            environment=self.environment,
            timeout=LONGEST_SECONDS,
        )
        assert done.returncode == status, f"{done.stdout}\n{done.stderr}"
        return done.stdout + done.stderr

    def start(self, *words: str, verb: str = "sweep") -> Command:
        """Start a sweep, or another command, in the background; it ends with the test."""
        sweep = self._run_command.start(
            [verb, "--runs", str(self.runs), *words],
            cwd=self.folder,
            environment=self.environment,
        )
        self.started.append(sweep)
        return sweep

    def end(self) -> None:
        """End the sweeps left by a failed test, and close the outputs of all."""
        for sweep in self.started:
            sweep.kill()
            sweep.communicate()

    def wait_until_training(self, run: str) -> None:
        """Wait until a run has started to train."""
        file = self.runs / run / "run.json"
        self.wait_until(lambda: file.exists() and json.loads(file.read_text())["started"])

    def wait_until(self, seen: Callable[[], Any]) -> None:
        """Poll until the result is true; a sweep first imports torch."""

        def look() -> Any:
            if not (found := seen()) and self.started[-1].poll() is not None:
                pytest.fail(f"the sweep ended first:\n{self.started[-1].communicate()[0]}")
            return found

        wait_until(look)

    def begun(self) -> dict[str, str]:
        """The start time of each run: a different time is a different run."""
        files = self.runs.glob("*/run.json")
        return {file.parent.name: json.loads(file.read_text())["created"] for file in files}


@pytest.fixture
def sweeps(tmp_path: Path, write_study: Any, run_command: CommandRunner) -> Iterator[Sweeps]:
    write_study()
    sweeps = Sweeps(tmp_path, run_command)
    yield sweeps
    sweeps.end()
