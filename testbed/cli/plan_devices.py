"""The parts of ``testbed plan`` about devices one by one: what was drawn, when they are present."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from testbed.faults.population import Availability
from testbed.reports.console import Console, Table
from testbed.scenario.devices import any_differs, devices, rows
from testbed.scenario.schema import Scenario
from testbed.scenario.workload import Workload
from testbed.scenario.workload_availability import node_availabilities
from testbed.values.topology import NodeSpec, Plan

MOST_DEVICES = 24
"""Maximum number of devices to print."""

MOST_CHANGES = 4
"""Number of changes of a node's presence to show."""


def devices_as_data(scenario: Scenario) -> dict[str, Any]:
    """Return the values of every device, if they differ within a class."""
    return {"devices": list(rows(devices(scenario)))} if any_differs(scenario) else {}


def print_devices(scenario: Scenario) -> None:
    """Show what was drawn, or read from a table, for each device; emulated."""
    from testbed.simulation.outline import describe

    if not any_differs(scenario):
        return
    found, batch = devices(scenario), scenario.workers.batch_size
    table = Table("device", "class", "a step", "up", "down", title="devices, emulated")
    for one in found[:MOST_DEVICES]:
        step = "" if one.pace is None else f"{one.pace.mean(batch):.4g} s"
        shapes = describe(one.link.up), describe(one.link.down)
        table.add_row(f"w{one.worker}", one.device_class, step, *shapes)
    _print(table, len(found))


def presence(workload: Workload, made: Plan, beside: Path) -> list[dict[str, Any]]:
    """Return which nodes are not always present, and when they are at first.

    Args:
        workload: the scenario.
        made: its plan.
        beside: folder of the scenario, which recordings are relative to.
    """
    found = node_availabilities(workload, lambda name: beside / name)
    return [_presence(made.nodes[one.worker], one) for one in found]


def _presence(node: NodeSpec, availability: Availability) -> dict[str, Any]:
    at, there, changes = 0.0, availability.at_first, list[float]()
    while len(changes) < MOST_CHANGES and (change := availability.after(at, there=there)):
        at, there = change
        changes.append(at)
    present = {"node": node.name, "present_at_start": availability.at_first}
    return {**present, "first_changes_seconds": changes, "when_absent": node.when_absent}


def print_presence(present: Sequence[Mapping[str, Any]]) -> None:
    """Print what ``presence`` returns, if there is any."""
    if not present:
        return
    table = Table("node", "at the start", "first changes", "when absent", title="availability")
    for one in present[:MOST_DEVICES]:
        changes = ", ".join(f"{at:.1f} s" for at in one["first_changes_seconds"])
        start = "present" if one["present_at_start"] else "absent"
        table.add_row(one["node"], start, changes or "none", one["when_absent"])
    _print(table, len(present))


def _print(table: Table, count: int) -> None:
    """Print a table of the first devices, and how many others there are."""
    console = Console()
    console.print(table)
    if count > MOST_DEVICES:
        console.print(f"and {count - MOST_DEVICES:,} more devices: --json", highlight=False)
