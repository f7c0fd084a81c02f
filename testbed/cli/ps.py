"""``testbed ps``: lists runs, or the nodes of a run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from testbed.cli.complete import complete_run
from testbed.cli.options import find, json_option, print_json, runs_option

if TYPE_CHECKING:
    from testbed.telemetry.folder import RunFolder

MOST_CHARACTERS = 160
"""Maximum length of the message on a run that cannot be read."""


@click.command("ps")
@click.argument("run", required=False, shell_complete=complete_run)
@click.option("--all", "everything", is_flag=True, help="Also list runs that have ended.")
@runs_option
@json_option
def command(run: str | None, everything: bool, runs: Path, as_json: bool) -> None:
    """List the active runs, or the nodes of RUN."""
    import os

    from testbed.reports.metrics.discovery import Targets
    from testbed.telemetry.registry import Registry, list_runs

    Targets.of_user(os.environ, Path.home()).tidy()
    if run is not None:
        folder = find(run, runs)
        folder.check_owner()
        rows = _nodes(folder)
    else:
        known = list_runs(runs, Registry.of_user(os.environ, Path.home()))
        rows = _runs(known, everything=everything)
    if as_json:
        print_json(rows)
    elif rows:
        _print(rows)
    else:
        click.echo("no active runs; `testbed ps --all` also lists those that have ended")


def _runs(paths: list[Path], *, everything: bool) -> list[dict[str, Any]]:
    from testbed.errors import TestbedError
    from testbed.telemetry.folder import ENDED, RunFolder

    rows = []
    for path in paths:
        folder = RunFolder(path)
        alive = folder.alive()
        workers, created = None, None
        try:
            state = folder.state()
        except TestbedError as error:  # a run that cannot be read must not hide the others
            if not (everything or folder.is_yours()):
                continue
            yours = folder.is_yours()
            shown = _shortened(error.message) if yours else "another user's, not readable"
        else:
            ended = state.state in ENDED
            if ended and not alive and not everything:
                continue
            shown = _describe(state.state, ended=ended, alive=alive)
            workers, created = len(state.classes), state.created
        row = {"run": path.name, "state": shown, "workers": workers, "created": created}
        rows.append({**row, "folder": str(path)})
    return rows


def _shortened(message: str) -> str:
    first = message.partition("\n")[0]
    return first if len(first) <= MOST_CHARACTERS else f"{first[:MOST_CHARACTERS]} ..."


def _describe(state: str, *, ended: bool, alive: bool) -> str:
    if ended:
        return f"{state}, containers kept" if alive else state
    return state if alive else f"{state}, but its controller has died"


def _nodes(folder: RunFolder) -> list[dict[str, Any]]:
    from testbed.plan.written import read_plan
    from testbed.run.nodes import running_nodes

    running = running_nodes(folder)
    return [
        {
            "node": node.name,
            "class": node.device_class or None,
            "condition": running[node.name].condition if node.name in running else "ended",
            "pid": running[node.name].pid if node.name in running else None,
        }
        for node in read_plan(folder).nodes
    ]


def _print(rows: list[dict[str, Any]]) -> None:
    from testbed.cli.console import Console, table

    shown = table(*rows[0])
    for row in rows:
        shown.add_row(*("-" if value is None else str(value) for value in row.values()))
    Console().print(shown)
