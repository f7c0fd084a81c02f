"""``testbed export mlflow``: runs in a database for `mlflow ui`."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click

from testbed.cli.options import export_runs, force_option, out_option, runs_argument, runs_option


@click.command("mlflow")
@runs_argument
@out_option
@force_option
@runs_option
def command(names: tuple[str, ...], out: Path, force: bool, runs: Path) -> None:
    """Add RUNs to OUT/mlflow.db, for `mlflow ui --backend-store-uri sqlite:///OUT/mlflow.db`.

    Needs MLflow's library: pip install 'edge-testbed[mlflow]'. `mlflow ui` is in package mlflow.
    """
    from testbed.reports.exports.mlflow import write_mlflow

    write = partial(write_mlflow, force=force)
    export_runs(names, out, write, force=force, runs=runs, folders=False)
