"""Shared by several verbs: options, their interpretation, and JSON output."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from testbed.cli.complete import complete_run, complete_runtime, complete_setting

if TYPE_CHECKING:
    from testbed.reports.frames import Run
    from testbed.scenario import Override
    from testbed.telemetry.folder import RunFolder


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


_runs = partial(
    click.option,
    "--runs",
    type=click.Path(path_type=Path),
    default=Path("runs"),
    show_default=True,
    metavar="DIR",
)
runs_option = _runs(help="Folder in which to look for runs first.")
new_runs_option = _runs(help="Folder in which to create the run's folder.")

runtime_option = click.option(
    "--runtime",
    metavar="NAME",
    shell_complete=complete_runtime,
    help="Short for --set runtime=NAME, such as native, docker or auto.",
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

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,59}")


def find(run: str, runs: Path) -> RunFolder:
    """Return the folder of a run by name or path; see ``find_run``."""
    from testbed.telemetry.registry import Registry, find_run

    return find_run(run, runs=runs, registry=Registry.of_user(os.environ, Path.home()))


def check_name(name: str | None) -> None:
    """Refuse a name that is not valid for a folder, a control group and a container.

    Raises:
        ScenarioError: the name has other characters, or is too long.
    """
    from testbed.errors import Problem, ScenarioError

    if name is not None and not _NAME.fullmatch(name):
        expected = "1 to 60 letters, digits, dots, hyphens and underscores, like lr0.01_s1"
        raise ScenarioError([Problem("--name", 0, "", repr(name), expected)])


def check_new(option: str, path: Path, *, force: bool, folder: bool = False) -> None:
    """Refuse an option's path if it exists, or cannot be created.

    An existing empty folder is accepted.

    Raises:
        ScenarioError: the path exists, or its parent folder does not.
    """
    from testbed.errors import Problem, ScenarioError

    expected, hint = "", ""
    if not path.parent.is_dir():
        expected, hint = "a path in an existing folder", f"Try: mkdir -p {path.parent}"
    elif path.exists() and path.is_dir() != folder:
        expected = "a folder" if folder else "a file, not a folder"
    elif path.exists() and not force and (not folder or any(path.iterdir())):
        expected = "an empty folder" if folder else "a file that does not exist yet"
        hint = "Replace it with --force."
    if expected:
        raise ScenarioError([Problem(option, 0, "", str(path), expected, hint)])


def export_runs(
    names: Sequence[str],
    out: Path,
    write: Callable[[Sequence[Run], Path], None],
    *,
    force: bool,
    runs: Path,
    folders: bool = True,
) -> None:
    """Export the named runs, and print the path; see ``write_runs``."""
    folders_of_runs = [find(name, runs).path for name in names]
    write_runs(folders_of_runs, out, write, force=force, folders=folders)
    click.echo(f"wrote {out}")


def write_runs(
    runs: Sequence[Path],
    out: Path,
    write: Callable[[Sequence[Run], Path], None],
    *,
    force: bool,
    folders: bool = True,
) -> None:
    """Write runs into a folder, all or none; with ``folders``, each into its own subfolder.

    Raises:
        ScenarioError: the folder cannot be created, or one of these runs already has a subfolder.
    """
    from testbed.reports.exports import open_runs

    check_new("--out", out, force=True, folder=True)
    opened = open_runs(runs)
    for run in opened if folders and out.exists() else ():
        check_new("--out", out / run.name, force=force, folder=True)
    write(opened, out)


def overrides(
    settings: Iterable[str], *, workers: int | None = None, runtime: str | None = None
) -> list[Override]:
    """Return overrides for ``--set`` (``path=value``); ``--workers`` and ``--runtime`` win.

    Raises:
        ScenarioError: a ``--set`` is not of the form ``path=value``.
    """
    from testbed.scenario import Override

    asked = [Override.parse(text) for text in settings]
    if workers is not None:
        asked.append(Override(f"--workers {workers}", ("workers", "count"), workers))
    if runtime is not None:
        asked.append(Override(f"--runtime {runtime}", ("runtime",), runtime))
    return asked


def print_json(data: Any) -> None:
    """Print data as JSON, for ``--json``."""
    click.echo(json.dumps(data, indent=2))
