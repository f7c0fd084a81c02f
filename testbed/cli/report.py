"""``testbed report``: what came out of a run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from testbed.cli.options import runs_option

if TYPE_CHECKING:
    from testbed.cli.live import LiveDisplay
    from testbed.reports.remake import Report


@click.command("report")
@click.argument("run")
@runs_option
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON instead.")
def command(run: str, runs: Path, as_json: bool) -> None:
    """Print the summary of RUN (a name or a path) and draw its figure again.

    A run whose controller died is completed from what its parameter server wrote itself.
    """
    import json
    import os

    from testbed.reports.remake import remake
    from testbed.telemetry.registry import Registry, find_run

    registry = Registry.of_user(os.environ, Path.home())
    folder = find_run(run, runs=runs, registry=registry)
    report = remake(folder.path, write=os.access(folder.path, os.W_OK))
    if as_json:
        click.echo(json.dumps(report.summary, indent=2))
    else:
        print_report(report, folder=folder.path)


def conclude(folder: Path, display: LiveDisplay) -> Report:
    """End what is shown live, with what came out.

    Of a run that did not come to train: how it ended, and where to look.
    """
    from testbed.reports.remake import remake

    try:
        report = remake(folder)  # before anything is shown: the terminal may be gone
    finally:
        display.close()
    summary = report.summary
    if summary["updates"]["total"]:
        print_report(report, folder=folder)
        return report
    why = f": {summary['reason']}" if summary["state"] == "finished" else ""
    click.echo(f"{summary['state']} before any update{why}")
    click.echo(f"folder: {folder}")
    return report


def print_report(report: Report, *, folder: Path) -> None:
    """The closing table, and where everything lies."""
    from testbed.cli.console import Console
    from testbed.reports.table import summary_table

    console = Console()
    console.print(summary_table(report.summary))
    if report.recovered:
        added = report.recovered
        click.echo(
            f"recovered: {added.updates} updates, {added.evaluations} evaluations and "
            f"{added.events} events that the controller did not live to write down"
        )
    click.echo(f"figure: {report.figure or 'none, there is no evaluation to draw'}")
    click.echo(f"folder: {folder}")
