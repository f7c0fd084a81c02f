"""``testbed fault``: injects faults into an active run, and lists the faults of any run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from testbed.cli.complete import nodes_argument, run_argument
from testbed.cli.options import find, json_option, print_json, runs_option


@click.group("fault")
def command() -> None:
    """Inject faults into an active run: freeze, partition or slow down workers. List faults."""


@command.command("freeze")
@run_argument
@nodes_argument
@click.option(
    "--for",
    "duration",
    metavar="TIME",
    help="How long to freeze the workers, in emulated time; by default until `testbed fault thaw`.",
)
@runs_option
def freeze(run: str, selector: tuple[str, ...], duration: str | None, runs: Path) -> None:
    """Freeze workers of the active RUN, without notifying the other nodes.

    NODE is a name, a pattern like 'w[0-9]', or class=NAME. With --for, the workers are thawed
    after that time.
    """
    from testbed.run.by_hand import ask, duration_of, selected

    if not selector:
        raise click.UsageError("No worker was given, expected for example w3 or class=slow.")
    folder = find(run, runs)
    nodes = selected(folder, selector)
    seconds = None if duration is None else duration_of(duration)
    ask(folder, "freeze", nodes, seconds=seconds)
    until = "until they are thawed" if duration is None else f"for {duration} of emulated time"
    click.echo(f"{', '.join(nodes)}: frozen {until}")


@command.command("thaw")
@run_argument
@nodes_argument
@runs_option
def thaw(run: str, selector: tuple[str, ...], runs: Path) -> None:
    """Thaw frozen workers of RUN; without NODE, all frozen workers."""
    from testbed.run.by_hand import ask, selected, standing_still

    folder = find(run, runs)
    nodes = selected(folder, selector) if selector else standing_still(folder)
    if not nodes:
        click.echo("no worker is frozen")
        return
    ask(folder, "thaw", nodes)
    click.echo(f"{', '.join(nodes)}: thawed")


@command.command("partition")
@run_argument
@nodes_argument
@click.option(
    "--for",
    "duration",
    metavar="TIME",
    required=True,
    help="How long to block the links, in emulated time.",
)
@runs_option
def partition(run: str, selector: tuple[str, ...], duration: str, runs: Path) -> None:
    """Block the links of workers of RUN for a duration, without notifying the other nodes."""
    from testbed.run.by_hand import ask, partition_of, selected

    if not selector:
        raise click.UsageError("No worker was given, expected for example w3 or class=slow.")
    folder = find(run, runs)
    nodes = selected(folder, selector)
    ask(folder, "partition", nodes, seconds=partition_of(duration, folder))
    click.echo(f"{', '.join(nodes)}: links blocked for {duration} of emulated time")


@command.command("slow")
@run_argument
@nodes_argument
@click.option(
    "--factor",
    type=click.FloatRange(1, 1e6, min_open=True),
    required=True,
    help="Multiply the duration of a step by this factor.",
)
@click.option(
    "--for",
    "duration",
    metavar="TIME",
    required=True,
    help="How long to slow down the workers, in emulated time.",
)
@runs_option
def slow(run: str, selector: tuple[str, ...], factor: float, duration: str, runs: Path) -> None:
    """Slow down the steps of workers of RUN for a duration, starting with their next step."""
    from testbed.run.by_hand import ask, duration_of, selected

    if not selector:
        raise click.UsageError("No worker was given, expected for example w3 or class=slow.")
    folder = find(run, runs)
    nodes = selected(folder, selector)
    ask(folder, "slow", nodes, seconds=duration_of(duration), factor=factor)
    click.echo(
        f"{', '.join(nodes)}: steps take {factor:g} times as long for {duration} of emulated time"
    )


@command.command("list")
@run_argument
@runs_option
@json_option
def show(run: str, runs: Path, as_json: bool) -> None:
    """List the faults of RUN: faults that have been applied and faults that are still planned."""
    from testbed.run.by_hand import listed

    rows = listed(find(run, runs))
    if as_json:
        print_json(rows)
    else:
        _print(rows)


def _print(rows: list[dict[str, Any]]) -> None:
    from testbed.cli.console import Console, table

    shown = table("fault", "workers", "planned", "actual")
    for row in rows:
        kind = row["kind"] if row["begins"] else f"end of {row['kind']}"
        actual = "not yet" if row["actual_seconds"] is None else f"{row['actual_seconds']:.3f} s"
        shown.add_row(kind, ", ".join(row["nodes"]) or "-", row["planned"], actual)
    Console().print(shown)
