"""``testbed net``: shows, measures and changes the links of an active run."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import click

from testbed.cli.complete import class_option, nodes_argument, run_argument
from testbed.cli.options import find, json_option, print_json, print_table, runs_option

Rows = list[dict[str, Any]]
UNMEASURED = "not measured: the host could not send that fast"


@click.group("net")
def command() -> None:
    """Show, measure and change the links of an active run."""


@command.command("show")
@run_argument
@runs_option
@json_option
def show(run: str, runs: Path, as_json: bool) -> None:
    """Show every link of RUN: the configured shape and the kernel's."""
    from testbed.run.net import open_links

    with open_links(find(run, runs)) as links:
        rows = links.show()
    if as_json:
        print_json(rows)
    else:
        _print_links(rows)


@command.command("probe")
@run_argument
@runs_option
@json_option
def probe(run: str, runs: Path, as_json: bool) -> None:
    """Measure the links of RUN's classes with temporary nodes."""
    from testbed.run.net import open_links

    with open_links(find(run, runs)) as links:
        rows = links.probe()
    if as_json:
        print_json(rows)
    else:
        _print_probes(rows)


@command.command("set")
@run_argument
@nodes_argument
@class_option
@click.option("--up", metavar="SHAPE", help="New shape from the node to the switch.")
@click.option("--down", metavar="SHAPE", help="New shape from the switch to the node.")
@click.option(
    "--for",
    "duration",
    metavar="TIME",
    help="How long to change the links, in emulated time; by default until `testbed net reset`.",
)
@runs_option
def change(
    run: str,
    selector: tuple[str, ...],
    device_class: str | None,
    up: str | None,
    down: str | None,
    duration: str | None,
    runs: Path,
) -> None:
    """Change the links of nodes of the active RUN.

    NODE is a name, a pattern like 'w[0-9]', or class=NAME (short: --class NAME). SHAPE is a rate,
    like 1mbit, or a list of fields, like rate=1mbit,delay=40ms,loss=0.01; other fields have the
    values of the scenario. With --for, the change is undone after that time, even if you have
    logged out.
    """
    if up is None and down is None:
        raise click.UsageError("Nothing to change: give --up, --down or both.")
    if not (nodes := _selectors(selector, device_class)):
        raise click.UsageError("No nodes were given: pass names of nodes, or --class.")
    from testbed.run.net import open_links

    with open_links(find(run, runs)) as links:
        click.echo(links.change(nodes, up=up, down=down, duration=duration))


@command.command("reset")
@run_argument
@nodes_argument
@class_option
@runs_option
def reset(run: str, selector: tuple[str, ...], device_class: str | None, runs: Path) -> None:
    """Reset all links of RUN, or those of the given nodes, to the shapes of the scenario."""
    from testbed.run.net import open_links

    with open_links(find(run, runs)) as links:
        click.echo(links.reset(_selectors(selector, device_class)))


def _selectors(selector: tuple[str, ...], device_class: str | None) -> tuple[str, ...]:
    return selector if device_class is None else (*selector, f"class={device_class}")


def _print_links(rows: Rows) -> None:
    """Print one row per direction; equal links of a class share a row."""
    groups: dict[tuple[str, ...], list[int]] = {}
    for index, row in enumerate(rows):
        for direction in ("up", "down"):
            differs = any(text.startswith(direction) for text in row["differences"])
            found = row[f"{direction}_found"] if differs else "the same"
            key = (row["class"] or "-", direction, row[direction], found)
            groups.setdefault(key, []).append(index)
    names = [row["node"] for row in rows]
    print_table(
        ("nodes", "class", "", "configured", "the kernel has"),
        ((_spans(alike, names), *key) for key, alike in groups.items()),
    )
    for row in rows:
        for text in (*row["differences"], *row["left_out"]):
            click.secho(f"{row['node']}: {text}", fg="yellow")


def _spans(indices: Sequence[int], names: Sequence[str]) -> str:
    """Return the names for these indices, such as ``w0 - w2, w4``: consecutive ones as a range."""
    from testbed.reports.console import span

    neighbours = groupby(enumerate(indices), key=lambda one: one[1] - one[0])
    return ", ".join(span(names[index] for _, index in group) for _, group in neighbours)


def _print_probes(rows: Rows) -> None:
    """Print configured and measured values of every class."""
    cells = []
    for row in rows:
        name = row["class"]
        for direction in ("up", "down"):
            asked = row[f"{direction}_configured_bits_per_second"]
            found = row[f"{direction}_bits_per_second"]
            told = UNMEASURED if asked is not None and found is None else _megabits(found)
            cells.append((name, f"rate {direction}", _megabits(asked), told))
        trips = (row["round_trip_configured_seconds"], row["round_trip_seconds"])
        cells.append((name, "round trip", *(_milliseconds(trip) for trip in trips)))
        for direction in ("up", "down"):
            seconds = row[f"message_{direction}_seconds"]
            cells.append((name, f"17 KB {direction}", "", _milliseconds(seconds)))
    print_table(("class", "", "configured", "measured"), cells)


def _megabits(rate: float | None) -> str:
    return "-" if rate is None else f"{rate / 1e6:.4g} mbit"


def _milliseconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1e3:.2f} ms"
