"""``testbed logs``: the output of nodes."""

from __future__ import annotations

import json
from pathlib import Path

import click

from testbed.cli.complete import nodes_argument, run_argument
from testbed.cli.options import find, runs_option
from testbed.errors import escaped


@click.command("logs")
@run_argument
@nodes_argument
@click.option("-f", "--follow", is_flag=True, help="Keep printing new output until the run ends.")
@runs_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
@click.option("--raw", is_flag=True, help="Print colours and other control sequences unescaped.")
def command(
    run: str, selector: tuple[str, ...], follow: bool, runs: Path, as_json: bool, raw: bool
) -> None:
    """Print the output of nodes of RUN; without --raw, control characters are escaped as \\x1b.

    SELECTOR is a node (w3), a pattern ('w[0-9]'), class=NAME, agent, controller (of a run in the
    background) or simulation (the output of custom code in a simulated run). By default: all nodes,
    and the log of a simulation.
    """
    from testbed.plan.selection import SIMULATION, select
    from testbed.plan.written import read_plan
    from testbed.run.follow import follow_logs, read_logs

    folder = find(run, runs)
    nodes = select(selector, read_plan(folder))
    if not selector and folder.log(SIMULATION).exists():
        nodes = (*nodes, SIMULATION)
    width = max(len(node) for node in nodes)
    printed = False
    for line in follow_logs(folder, nodes) if follow else read_logs(folder, nodes):
        if as_json:
            click.echo(json.dumps({"node": line.node, "line": line.text}))
        else:
            text = line.text if raw else escaped(line.text)
            click.echo(f"{line.node:<{width}} | {text}", color=raw)
        printed = True
    if not printed:
        click.echo(f"no output of {', '.join(selector) or 'any node'}", err=True)
