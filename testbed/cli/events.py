"""``testbed events``: past and current events of a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from testbed.cli.complete import complete_selector, run_argument
from testbed.cli.options import find, runs_option

if TYPE_CHECKING:
    from testbed.telemetry.entry import Entry


@click.command("events")
@run_argument
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
@runs_option
@click.option("--json", "as_json", is_flag=True, help="Print the lines of events.jsonl.")
def command(
    run: str,
    follow: bool,
    kinds: tuple[str, ...],
    selectors: tuple[str, ...],
    runs: Path,
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

    folder = find(run, runs)
    _check(kinds)
    nodes = frozenset(select(selectors, read_plan(folder))) if selectors else None
    for entry in follow_events(folder) if follow else read_events(folder.events):
        if (kinds and entry.name not in kinds) or not _is_of(entry, nodes):
            continue
        click.echo(json.dumps(entry.as_dict()) if as_json else _line(entry))


def _check(kinds: tuple[str, ...]) -> None:
    """Refuse unknown kinds of events.

    Raises:
        ScenarioError: there is no such kind.
    """
    from testbed.errors import Problem, ScenarioError
    from testbed.scenario.synonyms import nearest
    from testbed.telemetry.event_kinds import EVENTS

    expected = f"the name of an event: {', '.join(sorted(EVENTS))}"
    problems = [
        Problem("--kind", 0, "", repr(kind), expected, nearest(kind, list(EVENTS)))
        for kind in kinds
        if kind not in EVENTS
    ]
    if problems:
        raise ScenarioError(problems)


def _is_of(entry: Entry, nodes: frozenset[str] | None) -> bool:
    """Whether an event is of any of these nodes; True for all events if ``nodes`` is None."""
    if nodes is None:
        return True
    fields = vars(entry.event)
    return fields.get("node") in nodes or not nodes.isdisjoint(fields.get("nodes") or ())


def _line(entry: Entry) -> str:
    """Format an event: its time, its kind, and all fields that are not empty."""
    elapsed = entry.elapsed_seconds
    when = "" if elapsed is None else f"{elapsed:.3f} s"
    fields = entry.as_dict()
    told = [
        f"{name}={_word(value)}"
        for name, value in fields.items()
        if name not in ("time", "elapsed_seconds", "event", "source")
        and value not in (None, "", [], {})
    ]
    return f"{when:>12}  {entry.name:<14} {' '.join(told)}".rstrip()


def _word(value: Any) -> str:
    """Format a value on a single line, regardless of its content."""
    if isinstance(value, list):
        return ",".join(map(_word, value))
    is_plain = isinstance(value, str) and value.isprintable() and " " not in value
    return value if is_plain else json.dumps(value)
