"""``testbed export``: exports runs to the formats of other tools, one module per format."""

from __future__ import annotations

from importlib import import_module

import click

FORMATS: dict[str, str] = {
    "csv": "Every table as CSV.",
    "tensorboard": "A log folder for TensorBoard.",
    "mlflow": "A database for MLflow.",
    "prometheus": "OpenMetrics with timestamps, for Prometheus and Grafana.",
}
"""The formats and their lines in ``testbed export --help``, which imports none of them."""


class LazyFormats(click.Group):
    """A group in which format ``x`` is the ``command`` of testbed.cli.export_x."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the formats."""
        return list(FORMATS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return the format."""
        if cmd_name not in FORMATS:
            return None
        command: click.Command = import_module(f"testbed.cli.export_{cmd_name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of formats into the help."""
        with formatter.section("Formats"):
            formatter.write_dl(list(FORMATS.items()))


@click.group("export", cls=LazyFormats)
def command() -> None:
    """Export runs to the format of another tool."""
