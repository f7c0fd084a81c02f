"""``testbed schema``: the JSON schemas of scenarios and studies."""

from __future__ import annotations

import click


@click.command("schema")
@click.argument("kind", type=click.Choice(["scenario", "study"]), default="scenario")
def command(kind: str) -> None:
    """Print the JSON schema of scenario files, or of study files.

    Editors complete and check a scenario that starts with the line
    "# yaml-language-server: $schema=schema.json".
    """
    if kind == "study":
        from testbed.studies import study_schema_text

        click.echo(study_schema_text(), nl=False)
        return
    from testbed.scenario import json_schema_text

    click.echo(json_schema_text(), nl=False)
