"""Runs of workloads that a test records itself, for what reads a run folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from testbed.reports.workload import WorkloadRun
from testbed.scenario.dump import dump_data
from testbed.scenario.load_workload import load_workload
from testbed.telemetry.folder import RunFolder
from testbed.telemetry.record import Clock, Recorder


def record_workload(
    runs: Path, name: str, text: str, write: Callable[[Recorder, list[float]], None]
) -> WorkloadRun:
    """Record a run by a function that gets the recorder and the clock, which begins at 100 s."""
    runs.mkdir(exist_ok=True)
    source = runs.with_name("recorded.yaml")
    source.write_text(text)
    dumped = load_workload(source).model_dump(mode="json", by_alias=True, exclude_none=True)
    resolved = dump_data(dumped, "scenario")
    folder = RunFolder.create(runs, name, scenario="pair", text=resolved, classes=[], now=0.0)
    now = [100.0]
    clock = Clock(wall=lambda: now[0], steady=lambda: now[0], offset=lambda: 0.0)
    with Recorder.into(folder, time_scale=1.0, clock=clock) as recorder:
        write(recorder, now)
    return WorkloadRun(folder.path)
