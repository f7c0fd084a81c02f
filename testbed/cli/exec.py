"""``testbed exec``: runs a command in a node."""

from __future__ import annotations

from pathlib import Path

import click

from testbed.cli.complete import complete_node, run_argument
from testbed.cli.options import find, runs_option


@click.command("exec", context_settings={"ignore_unknown_options": True})
@run_argument
@click.argument("node", shell_complete=complete_node)
@click.argument("words", nargs=-1, required=True, metavar="-- COMMAND...", type=click.UNPROCESSED)
@runs_option
def command(run: str, node: str, words: tuple[str, ...], runs: Path) -> int:
    """Run a command in NODE of RUN, with the node's restrictions, and exit with its exit code.

    The command has the node's files, network, processes, uid and limits, and no capabilities. It
    gets a pseudo-terminal, or pipes if input or output is not a terminal.
    """
    from testbed.cli.host import require_linux
    from testbed.plan.selection import find_node
    from testbed.plan.written import read_plan
    from testbed.run.nodes import run_command
    from testbed.run.runtime import driver_for

    require_linux("exec")
    folder = find(run, runs)
    folder.check_owner()
    plan = read_plan(folder)
    return run_command(driver_for(folder, plan), folder, find_node(node, plan).name, words)
