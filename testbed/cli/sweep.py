"""``testbed sweep``: runs a study."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from testbed.cli.options import scale_option
from testbed.errors import InvalidValue
from testbed.values.units import Size

if TYPE_CHECKING:
    from testbed.studies.sweep import Swept


def _bytes(context: click.Context, parameter: click.Parameter, text: str | None) -> int:
    """Return the bytes of a size option; 0 without it."""
    try:
        return int(Size.parse(text)) if text else 0
    except InvalidValue as unfit:
        raise click.BadParameter(f"{unfit}.") from None


@click.command("sweep")
@click.argument("study", type=click.Path(path_type=Path))
@click.option(
    "--runs",
    type=click.Path(path_type=Path),
    default=Path("runs"),
    show_default=True,
    metavar="DIR",
    help="Where runs are looked for and made.",
)
@click.option("--only", metavar="NAME", help="Only what a figure, a table or a level needs.")
@scale_option
@click.option(
    "--jobs",
    type=click.IntRange(min=1),
    metavar="N",
    help="So many simulated runs side by side, at most one a CPU; by default one a CPU.",
)
@click.option(
    "--reuse",
    "reuse_bytes",
    callback=_bytes,
    metavar="SIZE",
    help="Keep so much of the gradients on disk meanwhile, like 20GB: simulated runs that train "
    "alike compute them once, and give the same.",
)
def command(
    study: Path, runs: Path, only: str | None, scale: float, jobs: int | None, reuse_bytes: int
) -> int:
    """Run what STUDY needs and is not there yet.

    A run is known by its resolved scenario: one that has come to its end is not repeated, nor one
    that was kept beside the study. One that was broken off goes on from its checkpoint if it was
    simulated and has one, else it begins anew. Exits with 6 if a run is not valid; it is kept. A
    run that fails does not keep the others from being run; the exit status is then that of the
    first.
    """
    import os
    import sys

    from testbed.cli.host import require_linux
    from testbed.host.cuda import has_cuda
    from testbed.studies import load_study
    from testbed.studies.sweep import sweep

    require_linux("sweep")
    whole = load_study(study, scale=scale, has_cuda=has_cuda)
    swept = sweep(
        whole.only(only) if only else whole,
        runs=runs,
        environment=os.environ,
        home=Path.home(),
        jobs=jobs,
        reuse_bytes=reuse_bytes,
        argv=tuple(sys.argv),
        tell=click.echo,
    )
    return _conclude(swept, study, scale)


def _conclude(swept: Swept, file: Path, scale: float) -> int:
    """Print the results; return the exit status."""
    from testbed.cli.up import INVALID

    there, all_runs = len(swept.found), len(swept.study.runs)
    click.echo(f"{there} of {all_runs} runs are there, {len(swept.invalid)} of them not valid")
    if there:
        scaled = "" if scale == 1 else f" --scale {scale:g}"
        click.echo(
            f"  testbed report {file} --runs {swept.runs}{scaled}    makes tables and figures"
        )
    for run, failure in swept.failed.items():
        click.echo(f"{run.base_name}: {failure.message}", err=True)
    if swept.failed:
        return next(iter(swept.failed.values())).exit_code
    return INVALID if swept.invalid else 0
