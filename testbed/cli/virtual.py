"""``testbed plan`` for a scenario with ``runtime: simulated``."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from testbed.cli.host import Capacity
    from testbed.scenario import Scenario
    from testbed.simulate.outline import Outline


def print_simulation(scenario: Scenario, host: Capacity, *, as_json: bool) -> None:
    """Show what a simulation of the scenario will model; touches nothing."""
    import json
    from dataclasses import asdict

    import click

    from testbed.plan.budget import count_parameters
    from testbed.simulate.outline import outline

    made = outline(scenario, parameters=count_parameters(scenario), processes=host.cpus)
    if as_json:
        data = {"run": scenario.name, "runtime": scenario.runtime.name, **asdict(made)}
        click.echo(json.dumps(data, indent=2))
    else:
        _print_outline(scenario, made, host)


def _print_outline(scenario: Scenario, made: Outline, host: Capacity) -> None:

    from testbed.cli.console import Console, Table

    table = Table(
        *("class", "workers", "a step", "up", "down"), title=f"{scenario.name}, SIMULATED"
    )
    table.add_row("(the PS)", "", "", made.ps_up, made.ps_down)
    for one in made.classes:
        step = f"{one.step_seconds:g} s"
        table.add_row(one.name, f"{one.workers:,}", step, one.up, one.down)
    console = Console()
    console.print(table)
    most = f"at most {made.updates_per_second:,.1f} updates/s, transfers not counted"
    lines = [
        ("think", made.think),
        ("the PS", made.ps_service),
        ("pace", f"{most} (emulated time)"),
    ]
    if made.memory_bytes is not None:
        needed, there = (f"{size / 1e6:,.0f} MB" for size in (made.memory_bytes, host.memory_bytes))
        lines.append(("memory", f"about {needed} of {there}"))
    lines += [("modelled", text) for text in made.modelled]
    lines += [("left out", text) for text in made.left_out]
    for (name, text), before in zip(lines, [("", ""), *lines], strict=False):
        shown = "" if name == before[0] else name
        console.print(f"{shown:8}  {text}", highlight=False, soft_wrap=True)
