"""``testbed resume``: resumes an interrupted simulated run."""

from __future__ import annotations

from pathlib import Path

import click

from testbed.cli.complete import run_argument
from testbed.cli.options import find, runs_option

INVALID = 6


@click.command("resume")
@run_argument
@runs_option
def command(run: str, runs: Path) -> int:
    """Resume RUN, an interrupted simulated run, from its checkpoint.

    The result is bit-identical to that of an uninterrupted run. Exit codes are those of `up`.
    """
    import os

    from testbed.cli.console import Console
    from testbed.cli.host import require_linux
    from testbed.cli.live import LiveDisplay, Progress
    from testbed.cli.up import Terminal
    from testbed.run.simulated import resumable, resume

    require_linux("resume")
    folder = find(run, runs)
    stop = resumable(folder).stop
    terminal = Terminal(LiveDisplay(Console(), Progress(stop.updates, stop.time)))
    return 0 if resume(folder, terminal, environment=os.environ) else INVALID
