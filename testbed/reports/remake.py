"""Rebuilds everything derived from a run's records: completed tables, summary, figure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from threading import Thread
from typing import Any

from testbed.reports.any_run import open_run
from testbed.reports.figures import write_figure
from testbed.reports.frames import Run
from testbed.telemetry.recovery import Recovered, recover

LIBRARIES = ("pandas", "pyarrow.parquet", "matplotlib.figure", "matplotlib.backends.backend_agg")


@dataclass(frozen=True)
class Report:
    """The results of a run."""

    summary: Mapping[str, Any]  # content of ``summary.json``, also of an active run
    figure: Path | None  # None if there was nothing to draw or no write permission
    recovered: Recovered  # rows and events added on behalf of a controller that died


@contextmanager
def libraries_imported() -> Iterator[None]:
    """Import the libraries of a report in the background: it takes a second.

    The context ends only after the imports: a half-imported library must not be used.
    """
    thread = Thread(target=_import_libraries, name="libraries")
    thread.start()
    try:
        yield
    finally:
        thread.join()


def _import_libraries() -> None:
    for name in LIBRARIES:
        import_module(name)


def remake(path: Path, *, write: bool = True) -> Report:
    """Complete a run folder, then create its summary and figure; write nothing unless ``write``.

    The summary of an active run is not written: the run writes it when it ends.

    Raises:
        RunNotFound: there is no run folder at ``path``.
        TestbedError: a file in it is damaged, or lacks rows; names the file.
    """
    run, recovered = open_run(path), Recovered()
    if write and isinstance(run, Run) and not run.alive:
        recovered = recover(run.folder, time_scale=run.scenario.time_scale)
    summary = run.write_summary() if write and not run.alive else run.summarise()
    drawn = write and isinstance(run, Run) and write_figure(run, summary)
    return Report(summary, run.folder.figure if drawn else None, recovered)
