"""Options that several verbs have, spelled and explained alike."""

from __future__ import annotations

from pathlib import Path

import click

runtime_option = click.option(
    "--runtime", metavar="NAME", help="Short for --set runtime=NAME: native, docker, auto ..."
)

runs_option = click.option(
    "--runs",
    type=click.Path(path_type=Path),
    default=Path("runs"),
    show_default=True,
    metavar="DIR",
    help="Where runs are looked for first.",
)

scale_option = click.option(
    "--scale",
    type=click.FloatRange(min=0, min_open=True, max=1000),
    default=1.0,
    show_default=True,
    metavar="FACTOR",
    help="Make the runs of a study so many times as long, and evaluate them in proportion.",
)
