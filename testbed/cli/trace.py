"""``testbed trace``: recordings of other tools and data sets."""

from __future__ import annotations

from pathlib import Path

import click

FORMATS = ("mahimahi", "csv", "pensieve", "norway", "5g", "monroe", "fcc", "fedscale", "flash")


@click.group("trace")
def command() -> None:
    """Convert recordings of rates, delays and availability."""


@command.command("convert")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--from", "format", type=click.Choice(FORMATS), help="Format of FILE.")
@click.option(
    "--quantity", type=click.Choice(("rate", "delay")), default="rate", help="What FILE records."
)
@click.option("--column", metavar="NAME", help="Column of the values.")
@click.option("--unit", metavar="UNIT", help="Their unit, such as kbit, B/s or ms.")
@click.option("--time", metavar="NAME", help="Column of the times.")
@click.option(
    "--time-unit",
    type=click.Choice(("us", "ms", "s", "min", "h")),
    help="Unit of times that are numbers; seconds by default.",
)
@click.option(
    "--where", multiple=True, metavar="COLUMN=VALUE", help="Keep rows with this value; repeatable."
)
@click.option("--devices", type=click.IntRange(1), help="Keep the first of many devices.")
@click.option(
    "--out", type=click.Path(path_type=Path), required=True, metavar="FILE", help="CSV to write."
)
@click.option("--force", is_flag=True, help="Overwrite it if it exists.")
def convert(
    file: Path,
    format: str | None,
    quantity: str,
    where: tuple[str, ...],
    devices: int | None,
    out: Path,
    force: bool,
    **columns: str | None,
) -> None:
    """Convert FILE to the CSV that scenarios read; without --from, its format is recognised."""
    from testbed.errors import Problem, ScenarioError
    from testbed.scenario import conversion
    from testbed.telemetry.files import write_atomically, writing
    from testbed.values.recordings import Reading
    from testbed.values.traces import InvalidLine

    rows = dict(one.split("=", 1) for one in where if "=" in one)
    if len(rows) != len(where):
        raise click.UsageError("--where: expected COLUMN=VALUE, like unit_id=386")
    if out.exists() and not force:
        raise click.UsageError(f"{out} exists: --force overwrites it.")
    reading = Reading(**{key: value or "" for key, value in columns.items()}, where=rows)
    try:
        content = file.read_bytes()
        text = conversion.convert(
            content, quantity=quantity, reading=reading, format=format or "", devices=devices
        )
    except InvalidLine as error:
        problem = Problem(str(file), error.line, "", error.found, error.expected)
        raise ScenarioError([problem]) from None
    except OSError as error:
        raise click.UsageError(f"{file}: {error.strerror}.") from None
    with writing(out):
        write_atomically(out, text)
    click.echo(f"wrote {out}: {text.count(chr(10)) - 2:,} rows")
