"""``testbed wait``: waits for the end of a run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from testbed.cli.complete import run_argument
from testbed.cli.options import FiniteRange, find, runs_option

if TYPE_CHECKING:
    from testbed.telemetry.folder import RunFolder, RunState

INVALID = 6
TIMED_OUT = 124
INTERRUPTED = 130


@click.command("wait")
@run_argument
@click.option(
    "--timeout",
    type=FiniteRange(min=0),
    metavar="SECONDS",
    help="Timeout, after which to exit with 124.",
)
@runs_option
def command(run: str, timeout: float | None, runs: Path) -> int:
    """Wait until RUN has ended, and exit with the exit code of its `testbed up`.

    Exits with 124 if the run is still active after the timeout.
    """
    import os

    from testbed.reports.metrics.discovery import Targets
    from testbed.run.follow import wait_for_end

    folder = find(run, runs)
    folder.check_owner()
    state = wait_for_end(folder, timeout_seconds=timeout)
    Targets.of_user(os.environ, Path.home()).tidy()
    if state is None:
        click.echo(f"{folder.name} is still running", err=True)
        return TIMED_OUT
    return _status(folder, state)


def _status(folder: RunFolder, state: RunState) -> int:
    """Return the exit status of the run's `up`; for a killed one, the status it would have had."""
    from testbed.errors import NodeError
    from testbed.reports.frames import Run
    from testbed.run.down import own_end

    match state.state:
        case "finished":
            return 0 if Run(folder.path).summary["verdict"]["valid"] else INVALID
        case "failed":
            return state.exit_code or NodeError.exit_code
        case "interrupted":
            return INTERRUPTED
    click.echo(
        f"{folder.name}: its controller was killed; complete its folder with "
        f"`testbed report {folder.name}`",
        err=True,
    )
    went_on_to_its_end = own_end(folder) is not None
    return INVALID if went_on_to_its_end else NodeError.exit_code
