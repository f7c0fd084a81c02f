"""``testbed export csv``: runs as CSV, one folder per run, one file per table."""

from __future__ import annotations

from pathlib import Path

import click

from testbed.cli.options import export_runs, force_option, out_option, runs_argument, runs_option


@click.command("csv")
@runs_argument
@out_option
@force_option
@runs_option
def command(names: tuple[str, ...], out: Path, force: bool, runs: Path) -> None:
    """Write the tables of RUNs as CSV: OUT/<run>/updates.csv, evaluations.csv, traffic.csv,
    events.csv, and summary.csv with a row for every value of the summary.
    """
    from testbed.reports.exports import write_tables as write

    export_runs(names, out, write, force=force, runs=runs)
