"""``testbed export``: exports runs to the formats of other tools."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from testbed.cli.options import (
    at_option,
    find,
    force_option,
    out_option,
    runs_argument,
    runs_option,
)

FOLDERS: dict[Any, str] = {
    "csv": """Every table as CSV.

    Writes the tables of RUNs as CSV: OUT/<run>/updates.csv, evaluations.csv, traffic.csv,
    links.csv, events.csv, and summary.csv with a row for every value of the summary; of a workload
    nodes.csv, pairs.csv, metrics.csv, traffic.csv, events.csv and summary.csv.""",
    "tensorboard": """A log folder for TensorBoard.

    Exports RUNs to a log folder: `tensorboard --logdir OUT` plots them together. Needs
    TensorBoard's library: pip install 'edge-testbed[tensorboard]'.""",
    "mlflow": """A database for MLflow.

    Adds RUNs to OUT/mlflow.db, for `mlflow ui --backend-store-uri sqlite:///OUT/mlflow.db`. Needs
    MLflow's library: pip install 'edge-testbed[mlflow]'. `mlflow ui` is in package mlflow.""",
}
"""The formats that are written into a folder, and the help of each."""


@click.group("export")
def command() -> None:
    """Export runs to the format of another tool."""


def _add(format: Any) -> None:
    @command.command(format, help=FOLDERS[format])
    @runs_argument
    @out_option
    @force_option
    @runs_option
    def write(names: tuple[str, ...], out: Path, force: bool, runs: Path) -> None:
        from testbed.api import export

        export(format, *(find(name, runs).path for name in names), out=out, force=force)
        click.echo(f"wrote {out}")


for _format in FOLDERS:
    _add(_format)


@command.command("prometheus", short_help="OpenMetrics, for Prometheus and Grafana.")
@runs_argument
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    required=True,
    metavar="FILE",
    help="The file to write.",
)
@click.option("--force", is_flag=True, help="Overwrite FILE if it exists.")
@at_option(
    "Timestamps: those of the runs; or shift all runs to the same start, so that the longest ends "
    "now or at the given time.",
    now=True,
)
@click.option(
    "--metrics-per-worker",
    is_flag=True,
    help="Export metrics of each worker even if there are more than 300 workers.",
)
@runs_option
def prometheus(
    names: tuple[str, ...],
    out: Path,
    force: bool,
    end: float | None,
    metrics_per_worker: bool,
    runs: Path,
) -> None:
    """Export ended RUNs (names or paths), live or simulated, as OpenMetrics with timestamps.

    `promtool tsdb create-blocks-from openmetrics FILE DIR` makes blocks of it for Prometheus.
    """
    from testbed.api import write_metrics

    found = list(dict.fromkeys(find(name, runs).path for name in names))
    count = write_metrics(found, out, force=force, end=end, per_worker=metrics_per_worker)
    click.echo(f"wrote {count:,} samples of {len(found)} runs to {out}")
