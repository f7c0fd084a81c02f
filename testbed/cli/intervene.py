"""``testbed net`` and ``fault``: the links of an active run, and faults by hand."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from testbed.cli.complete import class_option, complete_node, nodes_argument
from testbed.cli.options import (
    FiniteRange,
    force_option,
    json_option,
    of_run,
    print_json,
    print_table,
    size_of,
)

if TYPE_CHECKING:
    from testbed.telemetry.folder import RunFolder

Rows = list[dict[str, Any]]
UNMEASURED = "not measured: the host could not send that fast"


TO = "File to write, by default RUN-NODE.pcap; - for standard output"

_for_option = partial(click.option, "--for", "duration", metavar="TIME")


@click.group("net")
def net() -> None:
    """Show, measure and change the links of an active run."""


@net.command("show")
@of_run
@nodes_argument
@class_option
@json_option
def show(
    folder: RunFolder, selector: tuple[str, ...], device_class: str | None, as_json: bool
) -> None:
    """Show every link of RUN, or those of the given nodes: the configured shape and the kernel's.

    The kernel takes 20 ms or more for a link: name the nodes of a large run.
    """
    from testbed.run.net import open_links

    with open_links(folder) as links:
        rows = links.show(_selectors(selector, device_class))
    if as_json:
        print_json(rows)
    else:
        _print_links(rows)


@net.command("probe")
@of_run
@json_option
def probe(folder: RunFolder, as_json: bool) -> None:
    """Measure the links of RUN's classes with temporary nodes."""
    from testbed.run.net import open_links

    with open_links(folder) as links:
        rows = links.probe()
    if as_json:
        print_json(rows)
    else:
        _print_probes(rows)


@net.command("capture")
@of_run
@click.argument("node", metavar="NODE", shell_complete=complete_node)
@click.option(
    "--seconds",
    type=FiniteRange(min=0, min_open=True, max=86_400),
    default=10.0,
    show_default=True,
    help="How long to capture, in real time.",
)
@click.option(
    "--bytes",
    "most",
    callback=size_of,
    default="64MiB",
    show_default=True,
    metavar="SIZE",
    help="Maximum length of the file.",
)
@click.option("--to", type=click.Path(path_type=Path), metavar="FILE", help=f"{TO}.")
@force_option
def capture(
    folder: RunFolder, node: str, seconds: float, most: int, to: Path | None, force: bool
) -> None:
    """Capture what the link of NODE carries, both ways, for tcpdump or Wireshark.

    The file has the pcap format. The capture ends early if the file is full or the node ends.
    Ctrl-C ends it too, and keeps the file.
    """
    from testbed.run.capture import capture_into

    file = to or Path(f"{folder.name}-{node}.pcap")
    found = capture_into(folder, node, file, seconds=seconds, most_bytes=most, force=force)
    click.echo(found, err=True)  # standard output may be the file


@net.command("set")
@of_run
@nodes_argument
@class_option
@click.option("--up", metavar="SHAPE", help="New shape from the node to the switch.")
@click.option("--down", metavar="SHAPE", help="New shape from the switch to the node.")
@_for_option(
    help="How long to change the links, in emulated time; by default until `testbed net reset`."
)
def change(
    folder: RunFolder,
    selector: tuple[str, ...],
    device_class: str | None,
    up: str | None,
    down: str | None,
    duration: str | None,
) -> None:
    """Change the links of nodes of the active RUN.

    NODE is a name, a pattern like 'w[0-9]', or class=NAME (short: --class NAME); in a workload, it
    may be a link between switches. SHAPE is a rate, like 1mbit, or a list of fields, like
    rate=1mbit,delay=40ms,loss=0.01; other fields have the values of the scenario. With --for, the
    change is undone after that time, even if you have logged out.
    """
    if up is None and down is None:
        raise click.UsageError("Nothing to change: give --up, --down or both.")
    if not (nodes := _selectors(selector, device_class)):
        raise click.UsageError("No nodes were given: pass names of nodes, or --class.")
    from testbed.run.net import open_links

    with open_links(folder) as links:
        click.echo(links.change(nodes, up=up, down=down, duration=duration))


@net.command("reset")
@of_run
@nodes_argument
@class_option
def reset(folder: RunFolder, selector: tuple[str, ...], device_class: str | None) -> None:
    """Reset all links of RUN, or those of the given nodes, to the shapes of the scenario."""
    from testbed.run.net import open_links

    with open_links(folder) as links:
        click.echo(links.reset(_selectors(selector, device_class)))


def _selectors(selector: tuple[str, ...], device_class: str | None) -> tuple[str, ...]:
    return selector if device_class is None else (*selector, f"class={device_class}")


def _print_links(rows: Rows) -> None:
    """Print one row per direction; equal links of a class share a row."""
    from testbed.values.topology import DEFAULT_MTU

    groups: dict[tuple[str, ...], list[int]] = {}
    for index, row in enumerate(rows):
        for direction in ("up", "down"):
            differs = any(text.startswith(direction) for text in row["differences"])
            found = row[f"{direction}_found"] if differs else "the same"
            mtu = "" if row["mtu"] == DEFAULT_MTU else f", mtu {row['mtu']}"
            key = (row["class"] or "-", direction, f"{row[direction]}{mtu}", found)
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
    from testbed.reports.table import megabits, milliseconds

    cells = []
    for row in rows:
        name = row["class"] or row["link"]
        for direction in ("up", "down"):
            asked = row[f"{direction}_configured_bits_per_second"]
            found = row[f"{direction}_bits_per_second"]
            told = UNMEASURED if asked is not None and found is None else megabits(found)
            cells.append((name, f"rate {direction}", megabits(asked), told))
        trips = (row["round_trip_configured_seconds"], row["round_trip_seconds"])
        cells.append((name, "round trip", *(milliseconds(trip) for trip in trips)))
        for direction in ("up", "down"):
            seconds = row[f"message_{direction}_seconds"]
            cells.append((name, f"17 KB {direction}", "", milliseconds(seconds)))
    print_table(("class", "", "configured", "measured"), cells)


@click.group("fault")
def fault() -> None:
    """Inject faults into an active run: freeze, partition or slow down workers. List faults."""


@fault.command("freeze")
@of_run
@nodes_argument
@_for_option(
    help="How long to freeze the workers, in emulated time; by default until `testbed fault thaw`."
)
def freeze(folder: RunFolder, selector: tuple[str, ...], duration: str | None) -> None:
    """Freeze workers of the active RUN, without notifying the other nodes.

    NODE is a name, a pattern like 'w[0-9]', or class=NAME. With --for, the workers are thawed
    after that time.
    """
    until = "until they are thawed" if duration is None else f"for {duration} of emulated time"
    _inject(folder, "freeze", selector, f"frozen {until}", duration=duration)


@fault.command("thaw")
@of_run
@nodes_argument
def thaw(folder: RunFolder, selector: tuple[str, ...]) -> None:
    """Thaw frozen workers of RUN; without NODE, all frozen workers."""
    from testbed.run.by_hand import frozen_by_faults

    nodes = selector or frozen_by_faults(folder)
    if not nodes:
        click.echo("no worker is frozen")
        return
    _inject(folder, "thaw", nodes, "thawed")


@fault.command("partition")
@of_run
@nodes_argument
@_for_option(required=True, help="How long to block the links, in emulated time.")
def partition(folder: RunFolder, selector: tuple[str, ...], duration: str) -> None:
    """Block the links of workers of RUN for a duration, without notifying the other nodes."""
    done = f"links blocked for {duration} of emulated time"
    _inject(folder, "partition", selector, done, duration=duration)


@fault.command("slow")
@of_run
@nodes_argument
@click.option(
    "--factor",
    type=click.FloatRange(1, 1e6, min_open=True),
    required=True,
    help="Multiply the duration of a step by this factor.",
)
@_for_option(required=True, help="How long to slow down the workers, in emulated time.")
def slow(folder: RunFolder, selector: tuple[str, ...], factor: float, duration: str) -> None:
    """Slow down the steps of workers of RUN for a duration, starting with their next step.

    Nodes of a workload have their CPU limit divided by the factor.
    """
    from testbed.scenario.load_workload import is_workload_file

    programs = is_workload_file(folder.scenario)
    what = f"the CPU limit is divided by {factor:g}" if programs else f"steps take {factor:g} times"
    done = f"{what}{'' if programs else ' as long'} for {duration} of emulated time"
    _inject(folder, "slow", selector, done, duration=duration, factor=factor)


def _inject(
    folder: RunFolder, verb: Any, selector: Sequence[str], done: str, **options: Any
) -> None:
    """Have the controller apply a fault, and print what was ``done`` to which workers."""
    from testbed.run.by_hand import ask

    if not selector:
        raise click.UsageError("No worker was given, expected for example w3 or class=slow.")
    nodes = ask(folder, verb, selector, **options)
    click.echo(f"{', '.join(nodes)}: {done}")


@fault.command("list")
@of_run
@json_option
def list_faults(folder: RunFolder, as_json: bool) -> None:
    """List the faults of RUN: faults that have been applied and faults that are still planned."""
    from testbed.run.by_hand import listed

    rows = listed(folder)
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
