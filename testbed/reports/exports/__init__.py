"""Exports of runs to the formats of other tools, one module each; each uses the tool's library."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.errors import HostError, Problem, ScenarioError
from testbed.telemetry.files import writing

if TYPE_CHECKING:
    from testbed.reports.any_run import AnyRun

TABLES = ("updates", "evaluations", "traffic", "links", "events")
OF_WORKLOAD = ("nodes", "pairs", "metrics", "traffic", "events")


def check_new(option: str, path: Path, *, force: bool, folder: bool = False) -> None:
    """Refuse an option's path if it exists, or cannot be created.

    An existing empty folder is accepted.

    Raises:
        ScenarioError: the path exists, or its parent folder does not.
    """
    expected, hint = "", ""
    if not path.parent.is_dir():
        there = next(one for one in path.parents if one.exists())
        expected, hint = "a path in an existing folder", f"Try: mkdir -p {path.parent}"
        if not there.is_dir():
            hint = f"{there} is not a folder."
    elif path.exists() and path.is_dir() != folder:
        expected = "a folder" if folder else "a file, not a folder"
    elif path.exists() and not force and (not folder or any(path.iterdir())):
        expected = "an empty folder" if folder else "a file that does not exist yet"
        hint = "Replace it with --force."
    if expected:
        raise ScenarioError([Problem(option, 0, "", str(path), expected, hint)])


def write_runs(
    runs: Sequence[AnyRun],
    out: Path,
    write: Callable[[Sequence[AnyRun], Path], None],
    *,
    force: bool,
    folders: bool,
) -> None:
    """Write runs into a folder, all or none; with ``folders``, each into its own subfolder.

    Raises:
        ScenarioError: the folder cannot be created, or one of these runs already has a subfolder,
            or two runs have the same name.
        HostError: the folder cannot be written.
    """
    check_new("--out", out, force=True, folder=True)
    names = [run.name for run in runs]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        expected = "runs with different names, or a separate export of each run"
        found = f"several runs with the name {', '.join(twice)}"
        raise ScenarioError([Problem("RUN", 0, "", found, expected)])
    for name in names if folders and out.exists() else ():
        check_new("--out", out / name, force=force, folder=True)
    with writing(out):
        write(runs, out)


@contextmanager
def folder_a_run(out: Path, runs: Sequence[AnyRun]) -> Iterator[Path]:
    """Create a folder per run in ``out``: all of them or, if the export fails, none.

    Yields the folder in which to create one folder per run, named like the run. Other content of
    ``out`` is kept.
    """
    made = not out.exists()
    out.mkdir(exist_ok=True)
    fresh = out / f".{os.getpid()}.new"
    fresh.mkdir()
    try:
        yield fresh
        for run in runs:
            if (out / run.name).exists():
                (out / run.name).rename(fresh / f".{run.name}.old")
            (fresh / run.name).rename(out / run.name)
    finally:
        shutil.rmtree(fresh)
        if made and not any(out.iterdir()):
            out.rmdir()


def write_tables(runs: Sequence[AnyRun], out: Path) -> None:
    """Write all tables of the runs as CSV, and ``summary.csv`` with a row per value.

    Raises:
        TestbedError: a file of a run is damaged; then nothing is written.
    """
    from testbed.reports.frames import Run
    from testbed.reports.page import numbers_table
    from testbed.reports.table import csv_text

    with folder_a_run(out, runs) as fresh:
        for run in runs:
            folder = fresh / run.name
            folder.mkdir()
            for name in TABLES if isinstance(run, Run) else OF_WORKLOAD:
                getattr(run, name).to_csv(folder / f"{name}.csv", index=False)
            rows = numbers_table([run]).rows
            (folder / "summary.csv").write_text(csv_text(("path", "value"), rows))


def lacks(library: str, extra: str) -> HostError:
    """Return the error for a library that is not installed."""
    return HostError(
        f"The Python package {library} is not installed.",
        hint=f"Install it: pip install 'edge-testbed[{extra}]'",
    )
