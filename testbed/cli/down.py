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
@click.option("--all", "everything", is_flag=True, help="Every run of yours, wherever it lies.")
@runs_option
@click.option("--json", "as_json", is_flag=True, help="Print what was ended as JSON.")
def command(run: tuple[str, ...], everything: bool, runs: Path, as_json: bool) -> None:
    """End RUN (names or paths): its processes and containers go, its folder stays.

    Works after a crash of the command that started the run, without the scenario, and twice.
    """
    import os
    import time

    from testbed.cli.host import require_linux
    from testbed.metrics.discovery import Targets
    from testbed.run.down import end_all, end_run
    from testbed.run.runtime import runtime_of
    from testbed.runtimes.choose import drivers
    from testbed.telemetry.registry import Registry

    if bool(run) == everything:
        raise click.UsageError("Name the runs to end, or give --all.")
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
            click.echo(f"{one.run}: NOT ended")
        elif one.acted:
            click.echo(f"{one.run}: ended")
        elif one.folder is None:
            click.echo(f"{one.run}: left alone; it goes on, and is none of your runs")
        elif not everything:
            click.echo(f"{one.run}: nothing of it was left")
    for reason in dict.fromkeys(str(one.unasked) for one in ended if one.unasked):
        click.echo(f"what ended runs may have left in it was not looked for: {reason}", err=True)
    if everything and not any(one.acted or one.failure for one in ended):
        click.echo("nothing of yours was left to end")
