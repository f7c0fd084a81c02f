"""Charts of a workload's run: its metrics, the bytes and faults of its nodes, the host's load."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from testbed.reports.charts import (
    MEGABYTE,
    MOST_METRICS,
    MOST_POINTS,
    Chart,
    Series,
    curve,
    fault_series,
    host_chart,
    most_points,
)
from testbed.reports.workload_record import WorkloadRecord

if TYPE_CHECKING:
    import pandas as pd

MOST_LINES = 24
"""Lines of a chart; the values of more nodes are points in the colour of their class."""

TIME = "time since the first node started (s)"
SENT = "sent by all nodes (MB)"
WAYS = {"up_bytes": "sent", "down_bytes": "received"}


def charts_of_workload(run: WorkloadRecord) -> tuple[Chart, ...]:
    """Return the charts of a run that have points."""
    metrics = list(run.scenario.metrics)[:MOST_METRICS]
    lines = min(len(run.scenario.node_names()), MOST_LINES)
    most = most_points(2 * lines * (len(metrics) + 1))
    made = (
        *(chart for name in metrics for chart in _metric(run, name, most)),
        _bytes(run),
        *(_bytes_by_node(run, column, most) for column in WAYS),
        _faults(run),
        replace(host_chart([run], most), x_title=TIME),
    )
    return tuple(chart for chart in made if any(one.x for one in chart.series))


def node_numbers(run: WorkloadRecord) -> dict[str, int]:
    """Return the number of each node, from 0: its row in tables, and its height in charts."""
    return {name: number for number, name in enumerate(run.scenario.node_names())}


def classes_of_nodes(run: WorkloadRecord) -> dict[str, str]:
    """Return the class of each node; without classes, its program."""
    return {
        node: name
        for program, settings in run.scenario.workload.items()
        for node, (name, _) in zip(
            settings.node_names(program), settings.node_classes(program), strict=True
        )
    }


def _metric(run: WorkloadRecord, metric: str, most: int) -> Iterator[Chart]:
    """Yield a metric against time, and against the bytes that all nodes had sent until then."""
    rows = run.metrics[run.metrics["metric"] == metric]
    sent = run.series(metric)["sent_bytes"].to_numpy() / MEGABYTE
    for x, name, what, title in (
        (rows["time_seconds"], "time", "time", TIME),
        (sent, "sent", "bytes sent", SENT),
    ):
        series = _by_node(run, rows[["node", "value"]].assign(x=x), most)
        yield Chart(f"{metric}-{name}", f"{metric} against {what}", title, metric, series)


def _bytes(run: WorkloadRecord) -> Chart:
    totals = run.nodes.groupby("time_seconds")[[*WAYS]].sum()
    series = [
        curve(way, totals.index, totals[column] / MEGABYTE, most=MOST_POINTS)
        for column, way in WAYS.items()
    ]
    return Chart("bytes", "Bytes of all nodes", TIME, "Ethernet frames (MB)", tuple(series))


def _bytes_by_node(run: WorkloadRecord, column: str, most: int) -> Chart:
    points = run.nodes[["node"]].assign(
        x=run.nodes["time_seconds"],
        value=run.nodes[column].astype("float64") / MEGABYTE,
    )
    way = WAYS[column]
    return Chart(way, f"Bytes {way} by each node", TIME, f"{way} (MB)", _by_node(run, points, most))


def _by_node(run: WorkloadRecord, points: pd.DataFrame, most: int) -> tuple[Series, ...]:
    """Return a line per node, in the scenario's order; of many nodes, points by their classes."""
    known = set(points["node"])
    names = [node for node in run.scenario.node_names() if node in known]
    if len(names) <= MOST_LINES:
        whose, of = points["node"], names
    else:
        classes = classes_of_nodes(run)
        whose, of = points["node"].map(classes), list(dict.fromkeys(classes[one] for one in names))
    return tuple(
        curve(name, own["x"], own["value"], kind="line" if of is names else "points", most=most)
        for name, own in ((name, points[whose == name]) for name in of)
    )


def _faults(run: WorkloadRecord) -> Chart:
    numbers = node_numbers(run)
    series = fault_series(run.entries, numbers.get)
    return Chart("faults", "Faults", TIME, "number of the node", series)
