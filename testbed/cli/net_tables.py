"""The tables of ``testbed net``."""

from __future__ import annotations

from typing import Any

from rich import box

from testbed.cli.console import Console, Table

Rows = list[dict[str, Any]]


def print_links(rows: Rows) -> None:
    """One row a direction; alike links of a class stand in one."""
    table = Table("nodes", "class", "", "configured", "the kernel has", box=box.SIMPLE_HEAD)
    groups: dict[tuple[str, ...], list[str]] = {}
    for row in rows:
        for direction in ("up", "down"):
            differs = any(text.startswith(direction) for text in row["differences"])
            found = row[f"{direction}_found"] if differs else "the same"
            key = (row["class"] or "-", direction, row[direction], found)
            groups.setdefault(key, []).append(row["node"])
    for (device_class, direction, configured, found), nodes in groups.items():
        table.add_row(_range(nodes), device_class, direction, configured, found)
    Console().print(table)
    for row in rows:
        for text in (*row["differences"], *row["left_out"]):
            Console().print(f"{row['node']}: {text}", style="yellow")


def print_probes(rows: Rows) -> None:
    """Configured and measured values of every class."""
    table = Table("class", "", "configured", "measured", box=box.SIMPLE_HEAD)
    for row in rows:
        name = row["class"]
        for direction in ("up", "down"):
            fields = (f"{direction}_configured_bits_per_second", f"{direction}_bits_per_second")
            table.add_row(name, f"rate {direction}", *(_megabits(row[field]) for field in fields))
        trips = (row["round_trip_configured_seconds"], row["round_trip_seconds"])
        table.add_row(name, "round trip", *(_milliseconds(trip) for trip in trips))
        for direction in ("up", "down"):
            seconds = row[f"message_{direction}_seconds"]
            table.add_row(name, f"17 KB {direction}", "", _milliseconds(seconds))
    Console().print(table)


def _range(nodes: list[str]) -> str:
    return nodes[0] if len(nodes) == 1 else f"{nodes[0]} - {nodes[-1]}"


def _megabits(rate: float | None) -> str:
    return "-" if rate is None else f"{rate / 1e6:.4g} mbit"


def _milliseconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1e3:.2f} ms"
