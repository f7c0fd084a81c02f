"""Everything that is made from a run's records, made again: completed tables, summary, figure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from threading import Thread
from typing import Any

from testbed.events.entry import plain
from testbed.reports.figures import write_figure
from testbed.reports.frames import Run
from testbed.reports.summary import summarise, write_summary
from testbed.telemetry.recovery import Recovered, recover

LIBRARIES = ("pandas", "pyarrow.parquet", "matplotlib.figure", "matplotlib.backends.backend_agg")


@dataclass(frozen=True)
class Report:
    """What is there to show of a run."""

    summary: Mapping[str, Any]  # what ``summary.json`` holds, or would, of a run that goes on
    figure: Path | None  # the figure, or None if there was nothing to draw or no right to write it
    recovered: Recovered  # what a controller that died had left for us to add


@contextmanager
def libraries_imported() -> Iterator[None]:
    """Import, beside the body, what a report is made with: it takes a second.

    It is over when the body is: a library that is half imported is not to be used.
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
    """Complete a run's folder, then make its summary and figure; write nothing unless ``write``.

    The summary of a run that is still going on is not written: its end will do so.

    Raises:
        RunNotFound: there is no run folder at ``path``.
        TestbedError: a file in it is damaged; names it.
    """
    run = Run(path)
    if not write:
        return Report(plain(summarise(run)), None, Recovered())
    if run.alive:
        summary, recovered = plain(summarise(run)), Recovered()
    else:
        recovered = recover(run.folder, time_scale=run.scenario.time_scale)
        summary = write_summary(run)
    return Report(summary, run.folder.figure if write_figure(run, summary) else None, recovered)
