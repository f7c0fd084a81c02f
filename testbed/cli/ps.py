"""``testbed ps``: lists runs, or the nodes of one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from testbed.cli.options import runs_option

if TYPE_CHECKING:
    from testbed.telemetry.folder import RunFolder


@click.command("ps")
@click.argument("run", required=False)
@click.option("--all", "everything", is_flag=True, help="List runs that have ended too.")
@runs_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(run: str | None, everything: bool, runs: Path, as_json: bool) -> None:
    """List the runs that go on, or the nodes of RUN."""
    import json
    import os

    from testbed.telemetry.registry import Registry, find_run, list_runs

    registry = Registry.of_user(os.environ, Path.home())
    if run is not None:
        rows = _nodes(find_run(run, runs=runs, registry=registry))
    else:
        rows = _runs(list_runs(runs, registry), everything=everything)
    if as_json:
        click.echo(json.dumps(rows, indent=2))
    elif rows:
        _print(rows)
    else:
        click.echo("no run is going on; `testbed ps --all` lists those that have ended")


def _runs(paths: list[Path], *, everything: bool) -> list[dict[str, Any]]:
    from testbed.errors import TestbedError
    from testbed.telemetry.folder import ENDED, RunFolder

    rows = []
    for path in paths:
        folder = RunFolder(path)
        alive = folder.alive()
        row: dict[str, Any] = dict.fromkeys(("run", "state", "workers", "created", "folder"))
        row |= {"run": path.name, "folder": str(path)}
        try:
            state = folder.state()
        except TestbedError as error:  # one that cannot be read does not hide the others
            row |= {"state": error.message}
        else:
            ended = state.state in ENDED
            if ended and not alive and not everything:
                continue
            row |= {"state": _describe(state.state, ended=ended, alive=alive)}
            row |= {"workers": len(state.classes), "created": state.created}
        rows.append(row)
    return rows


def _describe(state: str, *, ended: bool, alive: bool) -> str:
    if ended:
        return f"{state}, its containers are kept" if alive else state
    return state if alive else f"{state}, but its controller is gone"


def _nodes(folder: RunFolder) -> list[dict[str, Any]]:
    from testbed.plan.written import read_plan
    from testbed.run.runtime import real_runtime

    plan = read_plan(folder)
    host = {node.node: node for node in real_runtime(plan).driver().state(folder).nodes}
    rows = []
    for node in plan.nodes:
        found = host.get(node.name)
        rows.append(
            {
                "node": node.name,
                "class": node.device_class or None,
                "condition": "ended" if found is None else found.condition,
                "pid": None if found is None else found.pid,
            }
        )
    return rows


def _print(rows: list[dict[str, Any]]) -> None:
    from rich import box

    from testbed.cli.console import Console, Table

    table = Table(*rows[0], box=box.SIMPLE_HEAD)
    for row in rows:
        table.add_row(*("-" if value is None else str(value) for value in row.values()))
    Console().print(table)
