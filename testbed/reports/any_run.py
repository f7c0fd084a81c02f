"""Opens a run of either kind: a training, or a workload."""

from __future__ import annotations

from pathlib import Path

from testbed.reports.frames import Run
from testbed.reports.record import find_folder
from testbed.reports.workload import WorkloadRun
from testbed.scenario.load_workload import is_workload_file

AnyRun = Run | WorkloadRun


def open_run(path: str | Path) -> AnyRun:
    """Open the run in a folder, or of a name in ``runs``; errors are those of ``testbed.Run``."""
    folder = find_folder(path)
    kind = WorkloadRun if is_workload_file(folder.scenario) else Run
    return kind(folder.path)
