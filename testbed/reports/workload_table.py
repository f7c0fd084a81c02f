"""A workload's summary as text: the verdict, and a row for every node."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from testbed.reports.table import describe_bytes, describe_recorded, shown, two_columns

if TYPE_CHECKING:
    from rich.table import Table


MOST_PAIRS = 12


def workload_tables(summary: Mapping[str, Any]) -> Iterator[Table]:
    """Yield the summary as a two-column table, and the nodes as another."""
    from testbed.reports.console import table

    yield two_columns(summary, workload_rows(summary))
    nodes = table(
        *("node", "exit", "sent", "packets", "received", "packets", "sent again", "dropped"),
        *("CPU", "memory"),
    )
    for name, one in summary["nodes"].items():
        nodes.add_row(
            name,
            shown(one["exit_status"], "d"),
            *traffic_cells(one),
            shown(one["cpu_seconds"], ",.1f", " s"),
            bytes_or_dash(one["memory_bytes_max"]),
        )
    yield nodes
    if summary["pairs"]:
        yield _pairs(summary["pairs"])


def traffic_cells(node: Mapping[str, Any]) -> Iterator[str]:
    """Yield bytes and packets sent and received by a node, bytes sent again, packets dropped."""
    for way in ("up", "down"):
        yield bytes_or_dash(node[f"{way}_bytes"])
        yield shown(node[f"{way}_packets"], ",d")
    yield bytes_or_dash(node["retransmitted_bytes"])
    yield shown(node["dropped_packets"], ",d")


def pairs_by_traffic(
    pairs: Mapping[str, Mapping[str, Any]],
) -> list[tuple[str, str, Mapping[str, Any]]]:
    """Return node, peer and totals of the pairs, each way by itself; most bytes first."""
    found = [(node, peer, one) for node, own in pairs.items() for peer, one in own.items()]
    return sorted(found, key=lambda row: -(row[2]["frame_bytes"] or row[2]["sent_bytes"] or 0))


def _pairs(pairs: Mapping[str, Mapping[str, Any]]) -> Table:
    """Return the pairs that have sent most, each way by itself."""
    from testbed.reports.console import table

    found = pairs_by_traffic(pairs)
    rows = table("from", "to", "Ethernet", "packets", "TCP data", "sent again", "round trip")
    for node, peer, one in found[:MOST_PAIRS]:
        trip = one["round_trip_seconds"]
        rows.add_row(
            *(
                node,
                peer,
                bytes_or_dash(one["frame_bytes"]),
                shown(one["packets"], ",d"),
                bytes_or_dash(one["sent_bytes"]),
                bytes_or_dash(one["retransmitted_bytes"]),
            ),
            shown(None if trip is None else 1000 * trip, ",.1f", " ms"),
        )
    if len(found) > MOST_PAIRS:
        rows.add_row(f"and {len(found) - MOST_PAIRS:,} others: pairs.csv", *("",) * 6)
    return rows


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


def bytes_or_dash(value: float | None) -> str:
    """Format bytes; a dash if they were not measured."""
    return describe_bytes(value, nothing="-")
