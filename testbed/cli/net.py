"""``testbed net``: shows, measures and changes the links of a run that goes on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from testbed.cli.options import runs_option

if TYPE_CHECKING:
    from testbed.run.net import Links

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
class_option = click.option(
    "--class", "device_class", metavar="NAME", required=True, help="The device class."
)


@click.group("net")
def command() -> None:
    """Show, measure and change the links of a run that goes on."""


@command.command("show")
@click.argument("run")
@runs_option
@json_option
def show(run: str, runs: Path, as_json: bool) -> None:
    """Show every link of RUN, as it was asked for and as the kernel has it."""
    with _links(run, runs) as links:
        rows = links.show()
    if as_json:
        _print_json(rows)
        return
    from testbed.cli.net_tables import print_links

    print_links(rows)


@command.command("probe")
@click.argument("run")
@runs_option
@json_option
def probe(run: str, runs: Path, as_json: bool) -> None:
    """Measure the links of RUN's classes with spare nodes, which are removed again."""
    with _links(run, runs) as links:
        rows = links.probe()
    if as_json:
        _print_json(rows)
        return
    from testbed.cli.net_tables import print_probes

    print_probes(rows)


@command.command("set")
@click.argument("run")
@class_option
@click.option("--up", metavar="SHAPE", help="What the class sends through, from now on.")
@click.option("--down", metavar="SHAPE", help="What it receives through.")
@click.option("--for", "duration", metavar="TIME", help="Emulated time; until reset without it.")
@runs_option
def change(
    run: str, device_class: str, up: str | None, down: str | None, duration: str | None, runs: Path
) -> None:
    """Change the links of a class of RUN while it goes on.

    SHAPE is a rate, like 1mbit, or a list of fields, like rate=1mbit,delay=40ms,loss=0.01. What it
    leaves out is as in the scenario. A change with --for ends by itself, whoever is logged in then.
    """
    if up is None and down is None:
        raise click.UsageError("Nothing to change: give --up, --down or both.")
    with _links(run, runs) as links:
        click.echo(links.change(device_class, up=up, down=down, duration=duration))


@command.command("reset")
@click.argument("run")
@click.option("--class", "device_class", metavar="NAME", help="One device class; all without it.")
@runs_option
def reset(run: str, device_class: str | None, runs: Path) -> None:
    """Give the links of RUN the shapes of its scenario again."""
    with _links(run, runs) as links:
        click.echo(links.reset(device_class))


@contextmanager
def _links(run: str, runs: Path) -> Iterator[Links]:
    import os

    from testbed.run.net import open_links
    from testbed.telemetry.registry import Registry, find_run

    folder = find_run(run, runs=runs, registry=Registry.of_user(os.environ, Path.home()))
    with open_links(folder) as links:
        yield links


def _print_json(rows: list[dict[str, Any]]) -> None:
    import json

    click.echo(json.dumps(rows, indent=2))
