"""``testbed completion``, and what it completes: runs, their nodes and classes, settings."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from testbed.errors import TestbedError
from testbed.telemetry.registry import Registry, find_run, list_runs

if TYPE_CHECKING:
    from testbed.scenario.schema_node import SchemaNode
    from testbed.values.topology import Plan

INSTALLATION = {
    "bash": "echo 'eval \"$(testbed completion bash)\"' >> ~/.bashrc",
    "zsh": "echo 'eval \"$(testbed completion zsh)\"' >> ~/.zshrc",
    "fish": "testbed completion fish > ~/.config/fish/completions/testbed.fish",
}

DEEPEST = 4
"""Maximum number of keys in a completed setting."""

QUIET = suppress(TestbedError, OSError)
"""Completes nothing if there is no such run, or it cannot be read."""


@click.command("completion")
@click.argument("shell", type=click.Choice(list(INSTALLATION)))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print the completion script for SHELL, with instructions for its installation."""
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    if kind is None:
        raise click.ClickException(f"this version of click has no completion for {shell}")
    script = kind(ctx.find_root().command, {}, "testbed", "_TESTBED_COMPLETE")
    click.echo(f"# To install it: {INSTALLATION[shell]}")
    click.echo("# and open a new shell.")
    click.echo(script.source_template % script.source_vars())


def complete_run(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Return names of runs, as in ``testbed ps --all``."""
    with QUIET:
        registry = Registry.of_user(os.environ, Path.home())
        return _fitting({path.name for path in list_runs(_folder(ctx), registry)}, incomplete)
    return []


def complete_node(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Return the nodes of the run earlier on the command line."""
    with QUIET:
        return _fitting({node.name for node in _plan(ctx).nodes}, incomplete)
    return []


def complete_selector(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Return nodes, and classes as ``class=slow``."""
    if incomplete.startswith("class="):
        names = complete_class(ctx, param, incomplete.removeprefix("class="))
        return [f"class={name}" for name in names]
    return [*complete_node(ctx, param, incomplete), *_fitting({"class="}, incomplete)]


def complete_class(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Return the device classes of the run earlier on the command line."""
    from testbed.plan.selection import classes_of

    with QUIET:
        return _fitting(set(classes_of(_plan(ctx))), incomplete)
    return []


def complete_runtime(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Return the runtimes."""
    from testbed.scenario.schema import Scenario
    from testbed.scenario.schema_node import SchemaNode

    return _fitting(set(SchemaNode(Scenario).fields["runtime"].members), incomplete)


def complete_setting(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Return paths of a scenario's fields, each with its ``=``."""
    from testbed.scenario.schema import Scenario
    from testbed.scenario.schema_node import SchemaNode

    return _fitting(set(_paths(SchemaNode(Scenario), "", DEEPEST)), incomplete)


run_argument = click.argument("run", shell_complete=complete_run)
nodes_argument = click.argument(
    "selector", nargs=-1, metavar="[SELECTOR]...", shell_complete=complete_selector
)
class_option = click.option(
    "--class",
    "device_class",
    metavar="NAME",
    shell_complete=complete_class,
    help="The nodes of a device class.",
)


def _paths(schema: SchemaNode, before: str, depth: int) -> Iterator[str]:
    """Yield the fields below a path that take a value; for a union, those of all its members."""
    for key in schema.keys if depth else ():
        inner = schema.enter(key)
        if inner is None:
            continue
        if inner.keys:
            yield from _paths(inner, f"{before}{key}.", depth - 1)
        if not inner.keys or inner.is_family:
            yield f"{before}{key}="


def _plan(ctx: click.Context) -> Plan:
    from testbed.plan.written import read_plan

    run = ctx.params["run"] or next(iter(ctx.args), "")  # not parsed if an option lacks its value
    registry = Registry.of_user(os.environ, Path.home())
    return read_plan(find_run(run, runs=_folder(ctx), registry=registry))


def _folder(ctx: click.Context) -> Path:
    return ctx.params.get("runs") or Path("runs")


def _fitting(words: set[str], incomplete: str) -> list[str]:
    return sorted(word for word in words if word.startswith(incomplete))
