"""``testbed logs``, ``events`` and ``exec``: what the nodes of a run print and do."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from testbed.cli.complete import complete_node, complete_selector, nodes_argument
from testbed.cli.options import of_run
from testbed.errors import Problem, ScenarioError, escaped
from testbed.host.requirements import require_linux

if TYPE_CHECKING:
    from testbed.telemetry.entry import Entry
    from testbed.telemetry.folder import RunFolder


@click.command("logs")
@of_run
@nodes_argument
@click.option("-f", "--follow", is_flag=True, help="Keep printing new output until the run ends.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
@click.option("--raw", is_flag=True, help="Print colours and other control sequences unescaped.")
def logs(
    folder: RunFolder, selector: tuple[str, ...], follow: bool, as_json: bool, raw: bool
) -> None:
    """Print the output of nodes of RUN; without --raw, control characters are escaped as \\x1b.

    SELECTOR is a node (w3), a pattern ('w[0-9]'), class=NAME, agent, controller (of a run in the
    background) or simulation (the output of custom code in a simulated run). By default: all nodes,
    and the log of a simulation.
    """
    from testbed.plan.selection import OTHERS, SIMULATION, select
    from testbed.plan.written import read_plan
    from testbed.run.follow import follow_logs, read_logs

    nodes = select(selector, read_plan(folder), others=OTHERS)
    if not selector and folder.log(SIMULATION).exists():
        nodes = (*nodes, SIMULATION)
    width = max(len(node) for node in nodes)
    printed = False
    for line in follow_logs(folder, nodes) if follow else read_logs(folder, nodes):
        if as_json:
            click.echo(json.dumps({"node": line.node, "line": line.text}))
        else:
            text = line.text if raw else escaped(line.text)
            click.echo(f"{line.node:<{width}} | {text}", color=raw)
        printed = True
    if not printed:
        click.echo(f"no output of {', '.join(selector) or 'any node'}", err=True)


@click.command("events")
@of_run
@click.option("-f", "--follow", is_flag=True, help="Keep printing new events until the run ends.")
@click.option("--kind", "kinds", multiple=True, metavar="K", help="Only events of this kind.")
@click.option(
    "--node",
    "selectors",
    multiple=True,
    metavar="SELECTOR",
    shell_complete=complete_selector,
    help="Only events of these nodes: w3, 'w[0-9]', class=slow.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the lines of events.jsonl.")
def events(
    folder: RunFolder,
    follow: bool,
    kinds: tuple[str, ...],
    selectors: tuple[str, ...],
    as_json: bool,
) -> None:
    """Print the events of RUN in order, with their times in real seconds since training started.

    docs/run-folder.md lists all kinds of events and their fields. --kind and --node can be
    repeated.
    """
    from testbed.plan.selection import select
    from testbed.plan.written import read_plan
    from testbed.run.follow import follow_events
    from testbed.telemetry.events import read_events

    _check(kinds)
    nodes = frozenset(select(selectors, read_plan(folder))) if selectors else None
    for entry in follow_events(folder) if follow else read_events(folder.events):
        if (kinds and entry.name not in kinds) or not _is_of(entry, nodes):
            continue
        click.echo(json.dumps(entry.as_dict()) if as_json else _line(entry))


@click.command("exec", context_settings={"ignore_unknown_options": True})
@of_run
@click.argument("node", shell_complete=complete_node)
@click.argument("words", nargs=-1, required=True, metavar="-- COMMAND...", type=click.UNPROCESSED)
def exec_(folder: RunFolder, node: str, words: tuple[str, ...]) -> int:
    """Run a command in NODE of RUN, with the node's restrictions, and exit with its exit code.

    The command has the node's files, network, processes, uid and limits, and no capabilities. It
    gets a pseudo-terminal, or pipes if input or output is not a terminal.
    """
    from testbed.plan.selection import find_node
    from testbed.plan.written import read_plan
    from testbed.run.follow import run_command
    from testbed.run.runtime import driver_for

    require_linux("exec")
    folder.check_owner()
    plan = read_plan(folder)
    return run_command(driver_for(folder, plan), folder, find_node(node, plan).name, words)


def _check(kinds: tuple[str, ...]) -> None:
    """Refuse unknown kinds of events."""
    from testbed.telemetry.event_kinds import EVENTS

    unknown = [kind for kind in kinds if kind not in EVENTS]
    if not unknown:
        return
    from testbed.scenario.synonyms import nearest

    expected = f"the name of an event: {', '.join(sorted(EVENTS))}"
    raise ScenarioError(
        [
            Problem("--kind", 0, "", repr(kind), expected, nearest(kind, list(EVENTS)))
            for kind in unknown
        ]
    )


def _is_of(entry: Entry, nodes: frozenset[str] | None) -> bool:
    """Whether an event is of any of these nodes; True for all events if ``nodes`` is None."""
    if nodes is None:
        return True
    fields = vars(entry.event)
    return fields.get("node") in nodes or not nodes.isdisjoint(fields.get("nodes") or ())


def _line(entry: Entry) -> str:
    """Format an event: its time, its kind, and its fields."""
    elapsed = entry.elapsed_seconds
    when = "" if elapsed is None else f"{elapsed:.3f} s"
    return f"{when:>12}  {entry.name:<14} {entry.describe()}".rstrip()
