"""A workload's summary as text: the verdict, and a row for every node."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from testbed.reports.table import (
    describe_bytes,
    describe_recorded,
    milliseconds,
    shown,
    two_columns,
)

if TYPE_CHECKING:
    from rich.table import Table

MOST_PAIRS = 12

NODE = (
    "exit",
    "CPU",
    "memory",
    *("sent", "packets", "received", "packets", "sent again", "dropped"),
)
"""Headings of ``node_cells``."""

PAIR = ("from", "to", "Ethernet", "packets", "TCP data", "sent again", "round trip")
"""Headings of ``pair_rows``."""


def workload_tables(summary: Mapping[str, Any]) -> Iterator[Table]:
    """Yield the summary as a two-column table, the nodes as another, and pairs that sent most."""
    from testbed.reports.console import table

    yield two_columns(summary, workload_rows(summary))
    nodes = table("node", *NODE)
    for name, one in summary["nodes"].items():
        nodes.add_row(name, *node_cells(one))
    yield nodes
    if found := pair_rows(summary):
        pairs = table(*PAIR)
        for row in found[:MOST_PAIRS]:
            pairs.add_row(*row)
        if len(found) > MOST_PAIRS:
            pairs.add_row(f"and {len(found) - MOST_PAIRS:,} others: pairs.csv")
        yield pairs


def node_cells(node: Mapping[str, Any]) -> Iterator[str]:
    """Yield the totals of a node as text."""
    yield shown(node["exit_status"], "d")
    yield shown(node["cpu_seconds"], ",.1f", " s")
    yield _bytes_or_dash(node["memory_bytes_max"])
    for way in ("up", "down"):
        yield _bytes_or_dash(node[f"{way}_bytes"])
        yield shown(node[f"{way}_packets"], ",d")
    yield _bytes_or_dash(node["retransmitted_bytes"])
    yield shown(node["dropped_packets"], ",d")


def pair_rows(summary: Mapping[str, Any]) -> list[list[str]]:
    """Return the totals of each pair of nodes as text, each way by itself; most bytes first."""
    pairs = summary["pairs"]
    found = [(node, peer, one) for node, own in pairs.items() for peer, one in own.items()]
    found.sort(key=lambda row: -(row[2]["frame_bytes"] or row[2]["sent_bytes"] or 0))
    return [
        [
            *(node, peer, _bytes_or_dash(one["frame_bytes"]), shown(one["packets"], ",d")),
            *(_bytes_or_dash(one["sent_bytes"]), _bytes_or_dash(one["retransmitted_bytes"])),
            milliseconds(one["round_trip_seconds"]),
        ]
        for node, peer, one in found
    ]


def workload_rows(summary: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the rows of a workload's summary by topic, without verdict, nodes and pairs."""
    seconds = summary["real_seconds"]
    reason = f": {summary['reason']}" if summary["reason"] else ""
    yield "ended", f"{summary['state']}{reason}"
    yield "time", "not started" if seconds is None else f"{seconds:,.1f} s"
    programs = (f"{name} {count}" for name, count in summary["workload"].items())
    yield "programs", ", ".join(programs)
    if summary["faults"]:
        yield "faults", ", ".join(f"{kind} {count}" for kind, count in summary["faults"].items())
    if links := summary["links"]:
        yield "recorded links", describe_recorded(links)
    for name, one in summary["metrics"].items():
        yield name, _metric(one)
    busy = summary["host"]["busy_ratio"]["mean"]
    yield "host", f"{shown(busy, '.0%')} busy"


def _metric(metric: Mapping[str, Any]) -> str:
    best = metric["best"]
    if best is None:
        return "no value"
    where = f"{best['node']}, {best['time_seconds']:,.1f} s"
    return f"best {best['value']:g} ({where}), last {metric['last']:g} of {metric['count']:,}"


def _bytes_or_dash(value: float | None) -> str:
    """Format bytes; a dash if they were not measured."""
    return describe_bytes(value, nothing="-")
