"""``testbed sweep``: runs a study."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from testbed.cli.options import scale_option, size_of, swept_runs_option
from testbed.errors import INTERRUPTED, INVALID

if TYPE_CHECKING:
    from testbed.studies.sweep import Swept


@click.command("sweep")
@click.argument("study", type=click.Path(path_type=Path))
@swept_runs_option
@click.option("--only", metavar="NAME", help="Only the runs of this figure, table or level.")
@scale_option
@click.option(
    "--jobs",
    type=click.IntRange(min=1),
    metavar="N",
    help="Number of simulated runs in parallel; by default one per CPU, and on this machine not "
    "more.",
)
@click.option(
    "--reuse",
    "reuse_bytes",
    callback=size_of,
    default="0B",
    metavar="SIZE",
    help="Disk space for gradients during the sweep, like 20GB: simulated runs with the same "
    "training compute them once, with identical results.",
)
@click.option(
    "--ray",
    metavar="ADDRESS",
    help="Execute simulated runs on a Ray cluster: auto, HOST:PORT, or ray://HOST:10001 from "
    "outside the cluster.",
)
def command(
    study: Path,
    runs: Path,
    only: str | None,
    scale: float,
    jobs: int | None,
    reuse_bytes: int,
    ray: str | None,
) -> int:
    """Execute the missing runs of STUDY: a file, or the name of one that ships with testbed.

    Runs are identified by their resolved scenario. A run is not repeated if it has finished, or if
    `testbed report --keep` stored its numbers next to the study. An interrupted simulated run
    resumes from its checkpoint; other interrupted runs, and those without a checkpoint, start from
    scratch. Exits with 6 if a run is invalid, and keeps that run. If a run fails, the others are
    still executed, and the exit code is that of the first failure.
    """
    from testbed.api import sweep_showing

    if ray and reuse_bytes:
        raise click.UsageError(
            "--reuse is not possible with --ray: gradients are kept on this disk."
        )
    try:
        swept = sweep_showing(click.echo, study, only, scale, runs, jobs, reuse_bytes, ray)
    except KeyboardInterrupt:
        click.echo("\ninterrupted: to resume, repeat the command.", err=True)
        return INTERRUPTED
    return _conclude(swept, study, scale)


def _conclude(swept: Swept, file: Path, scale: float) -> int:
    """Print the results; return the exit status."""

    there, all_runs = len(swept.found), len(swept.study.runs)
    click.echo(f"{there} of {all_runs} runs exist, {len(swept.invalid)} of them not valid")
    if there:
        scaled = "" if scale == 1 else f" --scale {scale:g}"
        click.echo(
            f"  testbed report {file} --runs {swept.runs}{scaled}    creates tables and figures"
        )
    for run, failure in swept.failed.items():
        click.echo(f"{run.base_name}: {failure.message}", err=True)
    if swept.failed:
        return next(iter(swept.failed.values())).exit_code
    return INVALID if swept.invalid else 0
