"""``testbed export tensorboard``: runs as a TensorBoard log folder."""

from __future__ import annotations

from pathlib import Path

import click

from testbed.cli.options import export_runs, force_option, out_option, runs_argument, runs_option


@click.command("tensorboard")
@runs_argument
@out_option
@force_option
@runs_option
def command(names: tuple[str, ...], out: Path, force: bool, runs: Path) -> None:
    """Export RUNs to a log folder: `tensorboard --logdir OUT` plots them together.

    Needs TensorBoard's library: pip install 'edge-testbed[tensorboard]'.
    """
    from testbed.reports.exports.tensorboard import write_tensorboard as write

    export_runs(names, out, write, force=force, runs=runs)
