"""Shell completion of arguments: runs, their nodes and classes, settings."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from testbed.scenario.schema_node import SchemaNode
    from testbed.values.topology import Plan

DEEPEST = 4
"""Maximum number of keys in a completed setting."""


def complete_run(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Return names of runs, as in ``testbed ps --all``."""
    from testbed.telemetry.registry import Registry, list_runs

    with _quiet():
        registry = Registry.of_user(os.environ, Path.home())
        return _fitting({path.name for path in list_runs(_folder(ctx), registry)}, incomplete)
    return []


def complete_node(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Return the nodes of the run earlier on the command line."""
    with _quiet():
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

    with _quiet():
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
    "selector", nargs=-1, metavar="[NODE]...", shell_complete=complete_selector
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
    from testbed.telemetry.registry import Registry, find_run

    run = ctx.params["run"] or next(iter(ctx.args), "")  # not parsed if an option lacks its value
    registry = Registry.of_user(os.environ, Path.home())
    return read_plan(find_run(run, runs=_folder(ctx), registry=registry))


def _folder(ctx: click.Context) -> Path:
    return ctx.params.get("runs") or Path("runs")


def _fitting(words: set[str], incomplete: str) -> list[str]:
    return sorted(word for word in words if word.startswith(incomplete))


@contextmanager
def _quiet() -> Iterator[Any]:
    """Complete nothing if there is no such run, or it cannot be read."""
    from testbed.errors import TestbedError

    try:
        yield
    except (TestbedError, OSError):
        return
