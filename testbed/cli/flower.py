"""The scenario of ``testbed up --flower``: written for the user, who can then change it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from testbed.errors import InvalidValue, Problem, ScenarioError, TestbedError

if TYPE_CHECKING:
    from testbed.scenario.override import Override


def write_scenario(
    app: Path,
    overrides: Sequence[Override],
    *,
    devices: int | None,
    profile: str | None,
    python: Path | None,
) -> tuple[Path, bool]:
    """Write the scenario of a Flower app, named after the app, in the current folder.

    Args:
        app: folder of the app.
        overrides: settings of the command, with which the scenario has to be valid.
        devices: number of SuperNodes; by default 2.
        profile: shipped link of each SuperNode, or the start of its name; None for unshaped links.
        python: Python environment with flwr.

    Returns:
        the file, and whether it is new: there may be one with the same content.

    Raises:
        ScenarioError: there is no such app or link, another file has the name, or the scenario is
            not valid, as when the environment has no flwr; nothing is written then.
    """
    from testbed.scenario.dump import dump_data
    from testbed.scenario.flower_app import App
    from testbed.scenario.load_workload import load_any

    try:
        name = App.read(app).name
    except InvalidValue as error:
        problem = Problem("--flower", 0, "", f"{app}: {error.found}", error.expected)
        raise ScenarioError([problem]) from None
    name = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:40]
    flower: dict[str, Any] = {"app": str(app)}
    if python is not None:
        flower["python"] = str(python)
    flower["count"] = devices or 2
    if profile is not None:
        flower["link"] = {"profile": _profile(profile)}
    file = Path(f"{name}.yaml")
    text = dump_data({"name": name, "workload": {"flower": flower}}, str(file))
    if file.exists():
        if file.read_text(encoding="utf-8") != text:
            expected = f"no such file, or this scenario in it: run it by `testbed up {file}`"
            raise ScenarioError([Problem(str(file), 0, "", "another scenario", expected)])
        return file, False
    file.write_text(text, encoding="utf-8")
    try:
        load_any(file, overrides=overrides)
    except ScenarioError:
        file.unlink()  # the user repeats the command with other options
        raise
    click.echo(f"wrote {file}: change it, and run it again by `testbed up {file}`")
    return file, True


@contextmanager
def removed_if_refused(file: Path, has_run: Callable[[], bool]) -> Iterator[None]:
    """Remove a file of ``write_scenario`` if this host cannot run it: nothing is left behind."""
    try:
        yield
    except TestbedError:
        if not has_run():
            file.unlink(missing_ok=True)
            click.echo(f"removed {file}, as nothing was started", err=True)
        raise


def _profile(given: str) -> str:
    from testbed.scenario.profiles import link_profiles

    names = sorted(link_profiles())
    meant = [name for name in names if name == given or name.startswith(f"{given}-")]
    if len(meant) != 1:
        expected = f"one of {', '.join(meant or names)}"
        raise ScenarioError([Problem("--profile", 0, "", repr(given), expected)])
    return meant[0]
