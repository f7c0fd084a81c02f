"""``testbed top``: live status of a run, by class and by worker."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from testbed.cli.options import json_option, of_run, print_json

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table

    from testbed.reports.standing import ClassStanding, Standing, StandingReader, WorkerStanding
    from testbed.telemetry.folder import RunFolder

ORDERS = {
    "age": "age_seconds",
    "staleness": "staleness_mean",
    "cycle": "cycle_seconds",
    "updates": "updates",
    "late": "late_steps",
    "node": "node",
}
"""Sort orders of workers; the first letter of each is its key."""

INTERVAL_SECONDS = 1.0
MOST_KEYS = 1024
MOST_METRICS = 4
FEWEST_ROWS = 3
CLASS_ROWS = 4
"""Lines of a table in addition to its rows."""


@click.command("top")
@of_run
@click.option(
    "--sort",
    type=click.Choice(list(ORDERS)),
    default="age",
    show_default=True,
    help="Column to sort the workers by, in descending order.",
)
@click.option("--once", is_flag=True, help="Print the status of all workers once, and exit.")
@json_option
def command(folder: RunFolder, sort: str, once: bool, as_json: bool) -> None:
    """Show the status of RUN: classes, the slowest and most stale workers, links, server.

    On a terminal, the display of an active run is refreshed every second. The keys a, s, c, u, l
    and n sort the workers by age of their last push, staleness, cycle, updates, late steps or name;
    r reverses the order, q quits. If the run has ended, or the output is not a terminal, the latest
    status is printed once.
    """
    from testbed.reports.console import Console
    from testbed.reports.frames import Run
    from testbed.reports.standing import StandingReader
    from testbed.scenario.load_workload import is_workload_file

    if is_workload_file(folder.scenario):
        _show_workload(folder, as_json=as_json)
        return
    reader = StandingReader(Run(folder.path))
    standing = reader.look(time.time())
    if as_json:
        from dataclasses import asdict

        from testbed.telemetry.entry import plain

        print_json(plain(asdict(standing)))
        return
    console = Console()
    if once or not standing.alive or not (console.is_terminal and sys.stdin.isatty()):
        console.print(_screen(standing, sort=sort, reverse=False, height=None))
        return
    _follow(reader, standing, console, sort)


def _show_workload(folder: RunFolder, *, as_json: bool) -> None:
    """Print the nodes of a workload, and what they have carried so far."""
    from testbed.reports.console import Console
    from testbed.reports.workload import WorkloadRun
    from testbed.reports.workload_table import workload_tables

    summary = WorkloadRun(folder.path).summarise()
    if as_json:
        print_json(summary)
        return
    Console().print(*workload_tables(summary))


def _follow(reader: StandingReader, standing: Standing, console: Any, sort: str) -> None:
    """Show the run until it ends or the user presses q; its last state stays on the terminal."""
    from rich.live import Live

    reverse = False
    letters = {name[0]: name for name in ORDERS}
    with (
        keys_of(sys.stdin.fileno()) as pressed,
        Live(console=console, screen=True, auto_refresh=False) as live,
    ):
        while standing.alive:
            height = console.size.height  # queried again: the window may have been resized
            screen = _screen(standing, sort=sort, reverse=reverse, height=height)
            live.update(screen, refresh=True)
            keys = pressed(INTERVAL_SECONDS)
            if "q" in keys:
                break
            for key in keys:
                reverse = reverse != (key == "r")
                sort = letters.get(key, sort)
            standing = reader.look(time.time())
    console.print(_screen(standing, sort=sort, reverse=reverse, height=console.size.height))


@contextmanager
def keys_of(terminal: int) -> Iterator[Callable[[float], str]]:
    """Read keys as they are pressed, without Enter.

    Args:
        terminal: its descriptor; any other reader would keep keys in its buffer.

    Yields:
        A function that waits up to the given seconds for a key, and returns all pressed keys.
    """
    import select
    import termios
    import tty

    before = termios.tcgetattr(terminal)

    def pressed(seconds: float) -> str:
        ready, _, _ = select.select([terminal], [], [], seconds)
        return os.read(terminal, MOST_KEYS).decode(errors="ignore") if ready else ""

    tty.setcbreak(terminal)
    try:
        yield pressed
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


def _screen(standing: Standing, *, sort: str, reverse: bool, height: int | None) -> Group:
    """Return the whole screen, with as many workers as fit; all workers without a height."""
    from rich.console import Group
    from rich.text import Text

    head = [
        Text(line, style="bold" if not index else "") for index, line in enumerate(_head(standing))
    ]
    workers = ordered(standing.workers, sort, reverse=reverse)
    count = len(workers)
    if height is not None:
        used = len(head) + 2 * CLASS_ROWS + len(standing.classes) + 1
        workers = workers[: max(FEWEST_ROWS, height - used)]
    left = f"workers by {sort}{', reversed' if reverse else ''}: {len(workers)} of {count}"
    return Group(*head, Text(left, style="dim"), _classes(standing), _workers(workers))


def ordered(workers: Any, sort: str, *, reverse: bool) -> list[WorkerStanding]:
    """Sort workers by value, largest first, or by name ascending; without a value, last."""
    column = ORDERS[sort]
    known = [one for one in workers if getattr(one, column) is not None]
    unknown = [one for one in workers if getattr(one, column) is None]
    if column == "node":
        known.sort(key=lambda one: int(one.node.removeprefix("w")), reverse=reverse)
    else:
        known.sort(key=lambda one: getattr(one, column), reverse=not reverse)
    return known + unknown


def _head(standing: Standing) -> Iterator[str]:
    from testbed.models.metrics import besides_defaults
    from testbed.reports.live import clock_text, rate_text
    from testbed.reports.table import describe_bytes, shown
    from testbed.telemetry.folder import ENDED

    state = standing.state
    if not standing.alive and state not in ENDED:
        state += ", but its controller has died"
    reason = f": {standing.reason}" if standing.reason else ""
    yield f"{standing.run}  {state}{reason}  {standing.time_seconds:,.1f} s emulated"
    names = besides_defaults(standing.metrics)[:MOST_METRICS]
    found = {name: standing.metrics[name] for name in names}
    if standing.accuracy is not None or not found:
        found = {"accuracy": standing.accuracy, **found}
    metrics = "  ".join(f"{name} {shown(one, '.4f')}" for name, one in found.items())
    loss = shown(standing.loss, ".4f")
    done = "" if standing.done_ratio is None else f" ({standing.done_ratio:.0%})"
    eta = "" if standing.eta_seconds is None else f"  ETA {clock_text(standing.eta_seconds)}"
    yield (
        f"{standing.updates:,} updates{done}  {rate_text(standing.updates_per_second)}/s  "
        f"{metrics}  loss {loss}  {standing.rejected:,} rejected{eta}"
    )
    server = standing.server

    def rate(name: str) -> str:
        value = server.get(f"wire_{name}_bytes_per_second")
        return "-" if value is None else f"{describe_bytes(value)}/s"

    busy = server.get("host_busy_ratio")
    yield (
        f"ps  in {rate('in')} ({describe_bytes(server['payload_in_bytes'])} payload)  "
        f"out {rate('out')} ({describe_bytes(server['payload_out_bytes'])} payload)  "
        f"{shown(server.get('sockets'))} sockets  host {shown(busy, '.0%')} busy"
    )
    if standing.faults:
        told = ", ".join(f"{count} {kind}" for kind, count in standing.faults.items())
        yield f"workers that do not take part: {told}"


def _classes(standing: Standing) -> Table:
    from testbed.reports.console import table
    from testbed.reports.live import rate_text
    from testbed.reports.table import shown

    rows = table(
        *("class", "workers", "updates", "/s", "staleness", "compute", "think"),
        *("transfer", "blocked", "up", "down"),
    )
    for one in standing.classes:
        rows.add_row(
            one.name,
            f"{one.running} of {one.workers}",
            f"{one.updates:,}",
            rate_text(one.updates_per_second),
            shown(one.staleness_mean, ",.1f"),
            *_shares(one),
            *(_link(one.link[direction]) for direction in ("up", "down")),
        )
    return rows


def _workers(workers: list[WorkerStanding]) -> Table:
    from testbed.reports.console import table
    from testbed.reports.table import shown

    rows = table(
        *("node", "class", "state", "updates", "age", "cycle", "staleness", "mean"),
        *("compute", "think", "transfer", "blocked", "late"),
    )
    for one in workers:
        rows.add_row(
            one.node,
            one.device_class,
            one.state,
            f"{one.updates:,}",
            shown(one.age_seconds, ",.2f", " s"),
            shown(one.cycle_seconds, ",.2f", " s"),
            shown(one.staleness),
            shown(one.staleness_mean, ",.1f"),
            *_shares(one),
            f"{one.late_steps:,}",
            style=None if one.state == "running" else "yellow",
        )
    return rows


def _shares(one: ClassStanding | WorkerStanding) -> list[str]:
    from testbed.reports.table import shown

    shares = (one.compute_ratio, one.think_ratio, one.transfer_ratio, one.blocked_ratio)
    return [shown(share, ".0%") for share in shares]


def _link(direction: Any) -> str:
    """Return the configured rate, with the measured one."""
    asked = direction["configured"].get("rate", "-")
    found = direction["measured_bits_per_second"]
    return asked if found is None else f"{asked} ({found / 1e6:.3g})"
