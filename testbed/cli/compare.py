"""``testbed compare``: the differences between two runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from testbed.cli.complete import complete_run
from testbed.cli.options import FiniteRange, runs_option

if TYPE_CHECKING:
    from collections.abc import Sequence

    from testbed.reports.compare import Difference
    from testbed.reports.frames import Run

DIFFERENT = 9


@click.command("compare")
@click.argument("first", shell_complete=complete_run)
@click.argument("second", shell_complete=complete_run)
@click.option(
    "--tolerance",
    type=FiniteRange(min=0),
    default=0.05,
    show_default=True,
    metavar="FRACTION",
    help="Largest accepted difference of a measure.",
)
@click.option(
    "--accuracy",
    type=FiniteRange(min=0, min_open=True, max=1),
    metavar="FRACTION",
    help="Also compare updates, time and bytes until this top-1 accuracy, such as 0.9.",
)
@runs_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(
    first: str,
    second: str,
    tolerance: float,
    accuracy: float | None,
    runs: Path,
    as_json: bool,
) -> int:
    """Compare the runs FIRST and SECOND, such as a live and a simulated run of one scenario.

    Prints the differences between their scenarios first. The difference of two accuracies is
    absolute; the difference of other measures is relative to the larger value.

    Exits with 9 if a measure differs by more than the tolerance.
    """
    import json
    import os
    from dataclasses import asdict

    from testbed.reports.compare import compare, scenario_differences
    from testbed.reports.frames import Run
    from testbed.telemetry.entry import plain
    from testbed.telemetry.registry import Registry, find_run

    registry = Registry.of_user(os.environ, Path.home())
    pair = [Run(find_run(text, runs=runs, registry=registry).path) for text in (first, second)]
    found = compare(*pair, accuracy=accuracy)
    if as_json:
        told = {
            "scenario": scenario_differences(pair),
            "measures": [asdict(one) for one in found],
        }
        click.echo(json.dumps(plain(told), indent=2))
    else:
        print_scenarios(pair)
        _print(found, [run.name for run in pair], tolerance=tolerance)
    return DIFFERENT if any(one.ratio > tolerance for one in found) else 0


def print_scenarios(runs: Sequence[Run]) -> None:
    """Print the differences between the scenarios of runs."""
    from rich import box

    from testbed.cli.console import WIDEST_VALUE, Console, Table
    from testbed.reports.compare import scenario_differences

    differences = scenario_differences(runs)
    if not differences:
        click.echo("The scenarios are the same.")
        return
    table = Table("the scenarios differ in", box=box.SIMPLE_HEAD)
    for run in runs:
        table.add_column(run.name, max_width=WIDEST_VALUE)
    for path, values in differences.items():
        table.add_row(path, *("-" if value is None else str(value) for value in values))
    Console().print(table)


def _print(differences: list[Difference], names: list[str], *, tolerance: float) -> None:
    from rich import box

    from testbed.cli.console import Console, Table

    table = Table("measure", *names, "difference", box=box.SIMPLE_HEAD)
    for one in differences:
        values = [_shown(value) for value in (one.first, one.second)]
        mark = "  beyond the tolerance" if one.ratio > tolerance else ""
        table.add_row(one.measure, *values, f"{one.ratio:.2%}{mark}")
    Console().print(table)


def _shown(value: float | None) -> str:
    if value is None:
        return ""
    return "never" if value == float("inf") else f"{value:,.5g}"
