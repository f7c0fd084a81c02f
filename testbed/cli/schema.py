"""``testbed schema``: the JSON schema of scenarios."""

from __future__ import annotations

import click


@click.command("schema")
def command() -> None:
    """Print the JSON schema of scenario files.

    Editors complete and check a scenario that begins with the line
    "# yaml-language-server: $schema=schema.json".
    """
    from testbed.scenario import json_schema_text

    click.echo(json_schema_text(), nl=False)
