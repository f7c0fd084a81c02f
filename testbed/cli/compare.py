"""``testbed compare``: how far two runs are apart."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from testbed.cli.options import runs_option

if TYPE_CHECKING:
    from testbed.reports.compare import Difference

DIFFERENT = 9


@click.command("compare")
@click.argument("first")
@click.argument("second")
@click.option(
    "--tolerance",
    type=click.FloatRange(min=0),
    default=0.05,
    show_default=True,
    metavar="SHARE",
    help="How far apart each measure may be.",
)
@runs_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(first: str, second: str, tolerance: float, runs: Path, as_json: bool) -> int:
    """Compare the runs FIRST and SECOND, such as a live and a simulated run of one scenario.

    Exits with 9 if a measure differs by more than the tolerance.
    """
    import json
    import os
    from dataclasses import asdict

    from testbed.errors import NodeError
    from testbed.reports.compare import compare
    from testbed.reports.frames import Run
    from testbed.telemetry.registry import Registry, find_run

    registry = Registry.of_user(os.environ, Path.home())
    pair = [Run(find_run(text, runs=runs, registry=registry).path) for text in (first, second)]
    differences = compare(*pair)
    if not differences:
        raise NodeError("there is nothing to compare: one of the runs has not applied any update.")
    if as_json:
        click.echo(json.dumps([asdict(one) for one in differences], indent=2))
    else:
        _print(differences, [run.name for run in pair], tolerance=tolerance)
    return DIFFERENT if any(one.ratio > tolerance for one in differences) else 0


def _print(differences: list[Difference], names: list[str], *, tolerance: float) -> None:
    from rich import box
    from rich.table import Table

    from testbed.cli.console import Console

    table = Table("measure", *names, "difference", box=box.SIMPLE_HEAD)
    for one in differences:
        values = ["" if value is None else f"{value:,.5g}" for value in (one.first, one.second)]
        mark = "  beyond the tolerance" if one.ratio > tolerance else ""
        table.add_row(one.measure, *values, f"{one.ratio:.2%}{mark}")
    Console().print(table)
