"""``testbed ps``, ``wait``, ``resume`` and ``down``: the runs of this user."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from testbed.cli.complete import complete_run
from testbed.cli.options import (
    FiniteRange,
    find,
    json_option,
    of_run,
    print_json,
    print_table,
    registry,
    runs_option,
)
from testbed.errors import INTERRUPTED, INVALID, NodeError, TestbedError
from testbed.host.requirements import require_linux
from testbed.reports.metrics.discovery import Targets
from testbed.telemetry.folder import ENDED, RunFolder, RunState
from testbed.telemetry.registry import list_runs

if TYPE_CHECKING:
    from testbed.run.down import Ended

MOST_CHARACTERS = 160
"""Maximum length of the message on a run that cannot be read."""

TIMED_OUT = 124


@click.command("ps")
@click.argument("run", required=False, shell_complete=complete_run)
@click.option("--all", "everything", is_flag=True, help="Also list runs that have ended.")
@runs_option
@json_option
def ps(run: str | None, everything: bool, runs: Path, as_json: bool) -> None:
    """List the active runs, or the nodes of RUN."""
    _tidy()
    if run is not None:
        folder = find(run, runs)
        folder.check_owner()
        rows = _nodes(folder)
    else:
        rows = _runs(list_runs(runs, registry()), everything=everything)
    if as_json:
        print_json(rows)
    elif rows:
        shown = (["-" if value is None else str(value) for value in row.values()] for row in rows)
        print_table(list(rows[0]), shown)
    else:
        click.echo("no active runs; `testbed ps --all` also lists those that have ended")


@click.command("wait")
@of_run
@click.option(
    "--timeout",
    type=FiniteRange(min=0),
    metavar="SECONDS",
    help="Timeout, after which to exit with 124.",
)
def wait(folder: RunFolder, timeout: float | None) -> int:
    """Wait until RUN has ended, and exit with the exit code of its `testbed up`.

    Exits with 124 if the run is still active after the timeout.
    """
    from testbed.run.follow import wait_for_end

    folder.check_owner()
    state = wait_for_end(folder, timeout_seconds=timeout)
    _tidy()
    if state is None:
        click.echo(f"{folder.name} is still running", err=True)
        return TIMED_OUT
    return _status(folder, state)


@click.command("resume")
@of_run
def resume(folder: RunFolder) -> int:
    """Resume RUN, an interrupted simulated run, from its checkpoint.

    The result is bit-identical to that of an uninterrupted run. Exit codes are those of `up`.
    """
    from testbed.cli.terminal import Terminal
    from testbed.reports.live_workload import display_of
    from testbed.run.simulated import resumable, resume

    require_linux("resume")
    terminal = Terminal(display_of(resumable(folder)))
    return 0 if resume(folder, terminal, environment=os.environ) else INVALID


@click.command("down")
@click.argument("run", nargs=-1, shell_complete=complete_run)
@click.option("--all", "everything", is_flag=True, help="Stop all your runs, in any folder.")
@runs_option
@click.option("--json", "as_json", is_flag=True, help="Print the stopped runs as JSON.")
def down(run: tuple[str, ...], everything: bool, runs: Path, as_json: bool) -> None:
    """Stop RUN (names or paths): remove its processes and containers, and keep its folder.

    Idempotent. Works without the scenario file, and after the command that started the run has
    crashed.
    """
    from testbed.run.down import end_all, end_run
    from testbed.run.runtime import drivers, runtime_of

    if bool(run) == everything:
        raise click.UsageError("Name the runs to stop, or give --all.")
    require_linux("down")
    if everything:
        ended = end_all(
            runs,
            registry(),
            drivers=drivers(),
            runtime_of=lambda folder: runtime_of(folder).name,
            clock=time.time,
        )
    else:
        folders = [find(text, runs) for text in run]
        ended = [
            end_run(folder, runtime_of(folder).driver(), clock=time.time) for folder in folders
        ]
    _tidy()
    if as_json:
        print_json([_as_dict(one) for one in ended])
    else:
        _print_ended(ended, everything=everything)
    failures = [one.failure for one in ended if one.failure is not None]
    for failure in failures[:-1]:
        click.echo(failure, err=True)
    if failures:
        raise failures[-1]


def _tidy() -> None:
    """Remove what killed controllers left for Prometheus."""
    Targets.of_user(os.environ, Path.home()).tidy()


def _runs(paths: list[Path], *, everything: bool) -> list[dict[str, Any]]:
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
    from testbed.run.follow import running_nodes

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


def _status(folder: RunFolder, state: RunState) -> int:
    """Return the exit status of the run's `up`; for a killed one, the status it would have had."""
    from testbed.reports.any_run import open_run
    from testbed.run.down import own_end

    match state.state:
        case "finished":
            return 0 if open_run(folder.path).summary["verdict"]["valid"] else INVALID
        case "failed":
            return state.exit_code or NodeError.exit_code
        case "interrupted":
            return INTERRUPTED
    click.echo(
        f"{folder.name}: its controller was killed; complete its folder with "
        f"`testbed report {folder.name}`",
        err=True,
    )
    return NodeError.exit_code if own_end(folder) is None else INVALID


def _as_dict(one: Ended) -> dict[str, Any]:
    return {
        "run": one.run,
        "folder": one.folder and str(one.folder),
        "acted": one.acted,
        "hosts": one.hosts,
        "failure": one.failure and one.failure.message,
    }


def _print_ended(ended: Sequence[Ended], *, everything: bool) -> None:
    for one in ended:
        if one.failure is not None:
            click.echo(f"{one.run}: NOT stopped")
        elif one.acted:
            also = f"; removed what it had on {', '.join(one.hosts)}" if one.hosts else ""
            click.echo(f"{one.run}: stopped{also}")
        elif one.folder is None:
            click.echo(f"{one.run}: skipped: it is active and belongs to another user")
        elif not everything:
            click.echo(f"{one.run}: nothing to remove")
    for reason in dict.fromkeys(str(one.unasked) for one in ended if one.unasked):
        click.echo(f"not searched for remains of ended runs: {reason}", err=True)
    if everything and not any(one.acted or one.failure for one in ended):
        click.echo("nothing to stop: you have no active runs")
