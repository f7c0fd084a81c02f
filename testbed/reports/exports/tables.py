"""Export to CSV, written by pandas: one folder per run, one file per table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.reports.exports import folder_a_run
from testbed.reports.run_page import numbers_table
from testbed.reports.text_table import csv_text

if TYPE_CHECKING:
    from testbed.reports.frames import Run

TABLES = ("updates", "evaluations", "traffic", "links", "events")


def write_tables(runs: Sequence[Run], out: Path) -> None:
    """Write all tables of the runs, and ``summary.csv`` with a row per value.

    Raises:
        TestbedError: a file of a run is damaged; then nothing is written.
    """
    with folder_a_run(out, runs) as fresh:
        for run in runs:
            folder = fresh / run.name
            folder.mkdir()
            for name in TABLES:
                getattr(run, name).to_csv(folder / f"{name}.csv", index=False)
            rows = numbers_table([run]).rows
            (folder / "summary.csv").write_text(csv_text(("path", "value"), rows))
