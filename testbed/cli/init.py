"""``testbed init``: writes an initial scenario."""

from __future__ import annotations

import os
import re

import click


@click.command("init")
@click.argument("name", default="first")
@click.option(
    "--from",
    "example",
    default="first",
    show_default=True,
    metavar="SCENARIO",
    help="Copy this scenario that ships with testbed, such as quickstart or adacomp/paper.",
)
def command(name: str, example: str) -> None:
    """Create NAME.yaml in the current folder, a commented scenario that can be run unchanged.

    NAME, by default first, is also the name of the scenario. Python files that it uses are copied
    too.
    """
    from pathlib import Path

    from testbed.errors import Problem, ScenarioError
    from testbed.run.prepare import custom_files
    from testbed.scenario import load
    from testbed.scenario.source import shipped
    from testbed.values.fields import check_name

    check_name(name, option="NAME")
    examples = shipped()
    if example not in examples:
        expected = f"one of {', '.join(examples)}"
        raise ScenarioError([Problem("--from", 0, "", repr(example), expected)])
    text = re.sub(
        r"^name: \S+", f"name: {name}", examples[example].read_text(encoding="utf-8"), flags=re.M
    )
    schema = f"$schema={examples['first'].with_name('schema.json')}"
    file = Path(f"{name}.yaml")
    files = {file: re.sub(r"\$schema=\S+", lambda _: schema, text, count=1)}
    scenario = load(examples[example])
    for own in custom_files(scenario, examples[example].parent):
        files[Path(own.name)] = own.read_text(encoding="utf-8")
    for path in filter(os.path.lexists, files):
        expected = "a name without an existing file here: testbed init NAME"
        raise ScenarioError([Problem(str(path), 0, "", "an existing file", expected)])
    for path, content in files.items():
        path.write_text(content, encoding="utf-8")
        click.echo(f"wrote {path}")
    click.echo(f"  testbed plan {file}    show what it starts")
    click.echo(f"  testbed up {file}      run it")
