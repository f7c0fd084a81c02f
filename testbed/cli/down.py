"""``testbed down``: ends runs and removes their remains."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from testbed.cli.complete import complete_run
from testbed.cli.options import find, print_json, runs_option

if TYPE_CHECKING:
    from testbed.run.down import Ended


@click.command("down")
@click.argument("run", nargs=-1, shell_complete=complete_run)
@click.option("--all", "everything", is_flag=True, help="Stop all your runs, in any folder.")
@runs_option
@click.option("--json", "as_json", is_flag=True, help="Print the stopped runs as JSON.")
def command(run: tuple[str, ...], everything: bool, runs: Path, as_json: bool) -> None:
    """Stop RUN (names or paths): remove its processes and containers, and keep its folder.

    Idempotent. Works without the scenario file, and after the command that started the run has
    crashed.
    """
    import os
    import time

    from testbed.cli.host import require_linux
    from testbed.reports.metrics.discovery import Targets
    from testbed.run.down import end_all, end_run
    from testbed.run.runtime import runtime_of
    from testbed.runtimes.choose import drivers
    from testbed.telemetry.registry import Registry

    if bool(run) == everything:
        raise click.UsageError("Name the runs to stop, or give --all.")
    require_linux("down")
    if everything:
        ended = end_all(
            runs,
            Registry.of_user(os.environ, Path.home()),
            drivers=drivers(),
            runtime_of=lambda folder: runtime_of(folder).name,
            clock=time.time,
        )
    else:
        folders = [find(text, runs) for text in run]
        ended = [
            end_run(folder, runtime_of(folder).driver(), clock=time.time) for folder in folders
        ]
    Targets.of_user(os.environ, Path.home()).tidy()
    if as_json:
        print_json([_as_dict(one) for one in ended])
    else:
        _print(ended, everything=everything)
    failures = [one.failure for one in ended if one.failure is not None]
    for failure in failures[:-1]:
        click.echo(failure, err=True)
    if failures:
        raise failures[-1]


def _as_dict(one: Ended) -> dict[str, Any]:
    return {
        "run": one.run,
        "folder": one.folder and str(one.folder),
        "acted": one.acted,
        "failure": one.failure and one.failure.message,
    }


def _print(ended: Sequence[Ended], *, everything: bool) -> None:
    for one in ended:
        if one.failure is not None:
            click.echo(f"{one.run}: NOT stopped")
        elif one.acted:
            click.echo(f"{one.run}: stopped")
        elif one.folder is None:
            click.echo(f"{one.run}: skipped: it is active and belongs to another user")
        elif not everything:
            click.echo(f"{one.run}: nothing to remove")
    for reason in dict.fromkeys(str(one.unasked) for one in ended if one.unasked):
        click.echo(f"not searched for remains of ended runs: {reason}", err=True)
    if everything and not any(one.acted or one.failure for one in ended):
        click.echo("nothing to stop: you have no active runs")
