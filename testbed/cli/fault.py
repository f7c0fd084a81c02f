"""``testbed fault``: injects faults into an active run, and lists the faults of any run."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click

from testbed.cli.complete import nodes_argument, run_argument
from testbed.cli.options import find, json_option, print_json, print_table, runs_option


@click.group("fault")
def command() -> None:
    """Inject faults into an active run: freeze, partition or slow down workers. List faults."""


_for_option = partial(click.option, "--for", "duration", metavar="TIME")


@command.command("freeze")
@run_argument
@nodes_argument
@_for_option(
    help="How long to freeze the workers, in emulated time; by default until `testbed fault thaw`."
)
@runs_option
def freeze(run: str, selector: tuple[str, ...], duration: str | None, runs: Path) -> None:
    """Freeze workers of the active RUN, without notifying the other nodes.

    NODE is a name, a pattern like 'w[0-9]', or class=NAME. With --for, the workers are thawed
    after that time.
    """
    until = "until they are thawed" if duration is None else f"for {duration} of emulated time"
    _inject(run, runs, "freeze", selector, f"frozen {until}", duration=duration)


@command.command("thaw")
@run_argument
@nodes_argument
@runs_option
def thaw(run: str, selector: tuple[str, ...], runs: Path) -> None:
    """Thaw frozen workers of RUN; without NODE, all frozen workers."""
    from testbed.run.by_hand import frozen_by_faults

    nodes = selector or frozen_by_faults(find(run, runs))
    if not nodes:
        click.echo("no worker is frozen")
        return
    _inject(run, runs, "thaw", nodes, "thawed")


@command.command("partition")
@run_argument
@nodes_argument
@_for_option(required=True, help="How long to block the links, in emulated time.")
@runs_option
def partition(run: str, selector: tuple[str, ...], duration: str, runs: Path) -> None:
    """Block the links of workers of RUN for a duration, without notifying the other nodes."""
    done = f"links blocked for {duration} of emulated time"
    _inject(run, runs, "partition", selector, done, duration=duration)


@command.command("slow")
@run_argument
@nodes_argument
@click.option(
    "--factor",
    type=click.FloatRange(1, 1e6, min_open=True),
    required=True,
    help="Multiply the duration of a step by this factor.",
)
@_for_option(required=True, help="How long to slow down the workers, in emulated time.")
@runs_option
def slow(run: str, selector: tuple[str, ...], factor: float, duration: str, runs: Path) -> None:
    """Slow down the steps of workers of RUN for a duration, starting with their next step."""
    done = f"steps take {factor:g} times as long for {duration} of emulated time"
    _inject(run, runs, "slow", selector, done, duration=duration, factor=factor)


def _inject(
    run: str, runs: Path, verb: Any, selector: Sequence[str], done: str, **options: Any
) -> None:
    """Have the controller apply a fault, and print what was ``done`` to which workers."""
    from testbed.run.by_hand import ask

    if not selector:
        raise click.UsageError("No worker was given, expected for example w3 or class=slow.")
    nodes = ask(find(run, runs), verb, selector, **options)
    click.echo(f"{', '.join(nodes)}: {done}")


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
        return
    print_table(
        ("fault", "workers", "planned", "actual"),
        (
            (
                row["kind"] if row["begins"] else f"end of {row['kind']}",
                ", ".join(row["nodes"]) or "-",
                row["planned"],
                "not yet" if row["actual_seconds"] is None else f"{row['actual_seconds']:.3f} s",
            )
            for row in rows
        ),
    )
