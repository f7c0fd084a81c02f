"""Shared by several verbs: options, their interpretation, and JSON output."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Iterable
from datetime import datetime
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from testbed.cli.complete import complete_run, complete_runtime, complete_setting, run_argument
from testbed.errors import InvalidValue
from testbed.telemetry.folder import RunFolder
from testbed.telemetry.registry import Registry, find_run
from testbed.values.units import Size

if TYPE_CHECKING:
    from testbed.scenario import Override


class FiniteRange(click.FloatRange):
    """A range of numbers that excludes NaN and infinity."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Convert as the base class, and refuse NaN and infinity."""
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value} is not a number.", param, ctx)
        return number


def size_of(ctx: click.Context, param: click.Parameter, value: str) -> int:
    """Return an option's bytes; it has a unit, such as 64MiB."""
    try:
        return int(Size.parse(value))
    except InvalidValue as error:
        raise click.BadParameter(f"{error}.", ctx, param) from None


def at_option(help: str, *, now: bool = False) -> Callable[[Any], Any]:
    """Return the option --at: when the longest of the runs ends, seconds since 1970, or None.

    ``now``: whether it may be now.
    """
    words = ("run", "now") if now else ("run",)

    def end_of(ctx: click.Context, param: click.Parameter, value: str) -> float | None:
        if value == "run":
            return None
        try:
            return time.time() if value in words else datetime.fromisoformat(value).timestamp()
        except (ValueError, OverflowError):
            expected = f"{', '.join(f'`{one}`' for one in words)} or a time like 2026-10-01T12:00"
            raise click.BadParameter(f"found {value!r}, expected {expected}.", ctx, param) from None

    return click.option(
        "--at",
        "end",
        callback=end_of,
        default="run",
        show_default=True,
        metavar="|".join([*words, "TIME"]),
        help=help,
    )


_runs = partial(
    click.option,
    "--runs",
    type=click.Path(path_type=Path),
    default=Path("runs"),
    show_default=True,
    metavar="DIR",
)
runs_option = _runs(help="Folder in which to look for runs first.")
swept_runs_option = _runs(help="Folder of existing and new runs.")
new_runs_option = _runs(help="Folder in which to create the run's folder.")

runtime_option = click.option(
    "--runtime",
    metavar="NAME",
    shell_complete=complete_runtime,
    help="Short for --set runtime=NAME, such as native, docker or auto.",
)
hosts_option = click.option(
    "--hosts",
    metavar="NAME",
    help="Short for --set runtime.hosts=NAME: local, or swarm for those of a Docker Swarm.",
)
workers_option = click.option(
    "--workers", type=int, metavar="N", help="Short for --set workers.count=N."
)
settings_option = click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="PATH=VALUE",
    shell_complete=complete_setting,
    help="Override a value of the scenario.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
force_option = click.option("--force", is_flag=True, help="Replace existing files.")
runs_argument = click.argument(
    "names", nargs=-1, required=True, metavar="RUN...", shell_complete=complete_run
)
out_option = click.option(
    "--out",
    type=click.Path(path_type=Path),
    required=True,
    metavar="DIR",
    help="The folder to write into; other files in it are kept.",
)
scale_option = click.option(
    "--scale",
    type=FiniteRange(min=0, min_open=True, max=1000),
    default=1.0,
    show_default=True,
    metavar="FACTOR",
    help="Multiply the length and the evaluation interval of a study's runs by FACTOR.",
)


def of_run(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the argument RUN and the option --runs; it receives the run's folder."""

    @run_argument
    @runs_option
    @wraps(command)
    def with_folder(run: str, runs: Path, **others: Any) -> Any:
        return command(find(run, runs), **others)

    return with_folder


def registry() -> Registry:
    """Return the registry of this user's runs."""
    return Registry.of_user(os.environ, Path.home())


def find(run: str, runs: Path) -> RunFolder:
    """Return the folder of a run by name or path; see ``find_run``."""
    return find_run(run, runs=runs, registry=registry())


def overrides(
    settings: Iterable[str],
    *,
    workers: int | None = None,
    runtime: str | None = None,
    hosts: str | None = None,
) -> list[Override]:
    """Return overrides for ``--set`` (``path=value``); the other options win.

    A ``--set`` of a field of the runtime, such as ``runtime.hosts``, is one of the chosen runtime.

    Raises:
        ScenarioError: a ``--set`` is not of the form ``path=value``.
    """
    from testbed.scenario import Override

    asked = [Override.parse(text) for text in settings]
    if workers is not None:
        asked.append(Override(f"--workers {workers}", ("workers", "count"), workers))
    if runtime is not None:
        chosen = Override(f"--runtime {runtime}", ("runtime",), runtime)
        asked = [chosen, *(one for one in asked if one.keys != ("runtime",))]
    if hosts is not None:
        asked.append(Override(f"--hosts {hosts}", ("runtime", "hosts"), hosts))
    return asked


def print_table(columns: Iterable[str], rows: Iterable[Iterable[Any]]) -> None:
    """Print rows of cells below their columns' names."""
    from testbed.reports.console import Console, table

    shown = table(*columns)
    for row in rows:
        shown.add_row(*row)
    Console().print(shown)


def print_json(data: Any) -> None:
    """Print data as JSON, for ``--json``."""
    click.echo(json.dumps(data, indent=2))
