"""``testbed dashboards``: starts and stops Prometheus and Grafana, and adds ended runs."""

from __future__ import annotations

import subprocess
from pathlib import Path

import click

from testbed.cli.options import at_option, find, runs_argument, runs_option


@click.group("dashboards")
def command() -> None:
    """Show runs in Prometheus and Grafana."""


@command.command("up")
def up() -> int:
    """Start Prometheus and Grafana on loopback, and print their addresses.

    They run in Docker Compose. If their images cannot be pulled, an installed Prometheus is used.
    They show every run that is started with `testbed up --metrics`.
    """
    return _execute("dashboards", "up")


@command.command("down")
def down() -> int:
    """Stop both; what they have recorded is kept."""
    return _execute("dashboards", "down")


@command.command("add")
@runs_argument
@at_option(
    "Timestamps: those of the runs; or shift all runs to the same start, so that the longest ends "
    "at this time, such as 2026-10-01T12:00."
)
@runs_option
def add(names: tuple[str, ...], end: float | None, runs: Path) -> int:
    """Add ended RUNs (names or paths) to the recordings of this Prometheus. Needs promtool.

    Prometheus takes nothing of the last three hours: runs that ended since then need `--at`.
    """
    from tempfile import TemporaryDirectory

    from testbed.api import write_metrics

    found = list(dict.fromkeys(find(name, runs).path for name in names))
    with TemporaryDirectory() as folder:
        file = Path(folder) / "runs.txt"
        write_metrics(found, file, force=False, end=end)
        return _execute("blocks", str(file))


def _execute(script: str, *arguments: str) -> int:
    """Run a script, which has printed what is wrong if it fails."""
    from testbed.errors import HostError

    command = ["bash", str(_compose() / script), *arguments]
    try:
        status = subprocess.run(command, check=False).returncode
    except FileNotFoundError as error:
        raise HostError("bash is not installed.", hint="apt install bash") from error
    return status if status in (0, click.UsageError.exit_code) else HostError.exit_code


def _compose() -> Path:
    """Return the folder of the scripts, in a clone or as installed.

    Raises:
        HostError: it is missing.
    """
    import testbed
    from testbed.errors import HostError
    from testbed.host.installed import DISTRIBUTION, installed_files

    clone = Path(testbed.__file__).parent.parent / "compose"
    if (clone / "compose.yaml").is_file():
        return clone
    for name, file in installed_files("compose"):
        if name == "compose.yaml":
            return file.parent
    raise HostError(
        "The files of the dashboards are not installed with testbed: compose.",
        hint=f"Reinstall {DISTRIBUTION}, or run testbed from a clone of its repository.",
    )
