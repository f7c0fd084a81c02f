"""Charts of runs as data, independent of the renderer: a browser or a printed page.

A curve keeps at most ``MOST_POINTS`` points, including the minimum and maximum of every
interval, so that no spike is lost.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from testbed.models.metrics import ACCURACY, besides_defaults, title_of, unit_of
from testbed.reports.history import RunHistory
from testbed.reports.measures import WINDOW, moving_average, scheduled, values
from testbed.reports.record import metric_columns
from testbed.telemetry.entry import Entry

if TYPE_CHECKING:
    import pandas as pd

    from testbed.reports.frames import Run
    from testbed.reports.record import RecordedRun

MOST_POINTS = 2_000
"""Per curve."""

MOST_METRICS = 8
"""Maximum number of charts of further metrics."""

MOST_POINTS_OF_A_PAGE = 40_000
"""For all curves of a page: about 20 bytes each, next to 4.8 MB for the plotting library."""

PACE_WINDOWS = 100
"""Number of time bins in which updates are counted."""

MEGABYTE = 1e6

WORKER = re.compile(r"w\d+")
"""The name of a worker."""

Kind = Literal["line", "points", "bars"]
Numbers = NDArray[np.float64]

COLOURS = (
    *("#1768ac", "#e07a1f", "#3f8f5b", "#9b5fa5", "#b23a48", "#5c6b73", "#c9a227", "#2a9d8f"),
)
DARK_COLOURS = (
    *("#5aa9e6", "#f4a259", "#6fcf97", "#c79bd2", "#ef767a", "#a9b4bc", "#e6c85c", "#5fd3c4"),
)
"""Colours of series in order, and the same on a dark page."""

TIMES = {
    "compute_seconds": "computing",
    "think_seconds": "thinking",
    "transfer_seconds": "transferring",
    "blocked_seconds": "blocked",
}
"""Activities of a worker, by column of the record of updates."""


@dataclass(frozen=True)
class Series:
    """One curve, point cloud, or colour of bars."""

    name: str  # its name in the legend
    x: tuple[float | str | None, ...]  # numbers, or the names of bars
    y: tuple[float | None, ...]  # same length as ``x``; None where a line is interrupted
    total: int  # number of points before thinning
    kind: Kind = "line"  # how it is drawn
    low: tuple[float, ...] = ()  # lower edge of a band around the curve; empty without a band
    high: tuple[float, ...] = ()  # upper edge of the band


@dataclass(frozen=True)
class Chart:
    """A chart."""

    name: str  # its file name without suffix
    title: str
    x_title: str
    y_title: str
    series: tuple[Series, ...]
    log: tuple[Literal["x", "y"], ...] = ()  # the logarithmic axes
    panel: str = ""  # its title as a panel of a figure
    mark: float | None = None  # position of a horizontal line
    y_range: tuple[float, ...] | None = None  # limits of the vertical axis
    from_zero: bool = False  # whether the horizontal axis starts at 0

    @property
    def note(self) -> str:
        """A sentence on the points that were left out; empty if there are none."""
        cut = [one for one in self.series if one.total > len(one.x)]
        if not cut:
            return ""
        shown, total = sum(len(one.x) for one in cut), sum(one.total for one in cut)
        return (
            f"{shown:,} of {total:,} points are drawn, including the minimum and maximum of every "
            "interval."
        )


def thin(values: Numbers, most: int = MOST_POINTS) -> NDArray[np.intp]:
    """Select the values to draw: both ends, and the extremes of equal intervals in between.

    Returns:
        Ascending indices, at most ``most`` (at least 4); all indices if there are no more.
    """
    count = len(values)
    if count <= most:
        return np.arange(count)
    edges = np.linspace(1, count - 1, (most - 2) // 2 + 1).astype(np.intp)
    kept = [0, count - 1]
    for first, last in pairwise(edges.tolist()):
        stretch = values[first:last]
        kept += [first + int(stretch.argmin()), first + int(stretch.argmax())]
    return np.unique(np.array(kept, np.intp))


def curve(name: str, x: ArrayLike, y: ArrayLike, *, kind: Kind = "line", most: int) -> Series:
    """Return a series of the finite points, thinned to ``most``."""
    points = np.stack([np.asarray(one, np.float64) for one in (x, y)])
    points = points[:, np.isfinite(points).all(axis=0)]
    kept = points[:, thin(points[1], most)].tolist()
    return Series(name, tuple(kept[0]), tuple(kept[1]), points.shape[1], kind)


def most_points(curves: int) -> int:
    """Return the maximum number of points per curve for a page with this number of curves."""
    return max(4, min(MOST_POINTS, MOST_POINTS_OF_A_PAGE // max(1, curves)))


def charts_of(runs: Sequence[Run]) -> tuple[Chart, ...]:
    """Return the charts of one run, by device class, or of several runs overlaid."""
    most = most_points(len(_groups(runs)) * 2 + len(runs) * 6)
    made = (
        _evaluated(runs, "accuracy-ingress", "payload_up_bytes", ACCURACY, most),
        _evaluated(runs, "accuracy-time", "time_seconds", ACCURACY, most),
        _evaluated(runs, "loss-time", "time_seconds", "loss", most),
        *(_evaluated(runs, f"{one}-time", "time_seconds", one, most) for one in _extra(runs)),
        _staleness(runs, most),
        _pace(runs),
        _time_shares(runs),
        _bytes(runs, most),
        host_chart(runs, most),
        *(_faults(run, alone=len(runs) == 1) for run in runs),
    )
    return tuple(chart for chart in made if any(one.x for one in chart.series))


def _groups(runs: Sequence[Run]) -> list[tuple[str, pd.DataFrame]]:
    """Return the updates of one run by class, or of several runs by run."""
    if len(runs) > 1:
        return [(run.name, run.updates) for run in runs]
    updates = runs[0].updates
    names = updates["device_class"].cat.categories
    return [(str(name), updates[updates["device_class"] == name]) for name in names]


AXES = {
    "payload_up_bytes": (MEGABYTE, "ingress at the parameter server: payload of all pushes (MB)"),
    "time_seconds": (1.0, "emulated time (s)"),
}
"""Unit and title of a horizontal axis, by column of the evaluations."""


def vertical(column: str) -> tuple[float, str]:
    """Return the factor and the title of a vertical axis: of the loss, or of a metric."""
    title = title_of(column)
    return (100.0, f"{title} (%)") if unit_of(column) else (1.0, title)


def _extra(runs: Sequence[Run]) -> list[str]:
    """Return the first metrics that runs have besides those of every scenario."""
    found = dict.fromkeys(name for run in runs for name in metric_columns(run.evaluations))
    return besides_defaults(found)[:MOST_METRICS]


def _evaluated(runs: Sequence[Run], name: str, against: str, column: str, most: int) -> Chart:
    """Return accuracy or loss during the training.

    For a single run also the moving average of the scheduled evaluations.
    """
    (x_scale, x_title), (y_scale, y_title) = AXES[against], vertical(column)
    series = []
    for run in runs:
        during = run.evaluations[~run.evaluations["final"]]
        x = during[against] / x_scale
        found = values(during, column)
        alone = len(runs) == 1
        series.append(curve("one evaluation" if alone else run.name, x, found * y_scale, most=most))
        due = scheduled(run.evaluations, run.scenario)
        if alone and len(due) >= WINDOW:
            x = due[against] / x_scale
            smooth = moving_average(values(due, column)) * y_scale
            series.append(curve(f"mean of the last {WINDOW}", x, smooth, most=most))
    what, where = (one.partition(" (")[0].partition(" at ")[0] for one in (y_title, x_title))
    return Chart(name, f"{what.capitalize()} against {where}", x_title, y_title, tuple(series))


def _staleness(runs: Sequence[Run], most: int) -> Chart:
    series = [
        curve(name, updates["time_seconds"], updates["staleness"], kind="points", most=most)
        for name, updates in _groups(runs)
    ]
    title, x_title = "Staleness of every update", AXES["time_seconds"][1]
    return Chart("staleness", title, x_title, "staleness (updates)", tuple(series))


def _pace(runs: Sequence[Run]) -> Chart:
    """Return the updates per emulated second, counted in equal bins of the training time."""
    end = max(
        (float(run.updates["time_seconds"].max()) for run in runs if len(run.updates)), default=0
    )
    series = []
    for name, updates in _groups(runs) if end > 0 else ():
        counts, edges = np.histogram(updates["time_seconds"], PACE_WINDOWS, (0.0, end))
        width = end / PACE_WINDOWS
        series.append(curve(name, edges[:-1] + width / 2, counts / width, most=MOST_POINTS))
    title = f"Updates per second, in {PACE_WINDOWS} intervals"
    return Chart(
        "pace", title, AXES["time_seconds"][1], "updates per emulated second", tuple(series)
    )


def _time_shares(runs: Sequence[Run]) -> Chart:
    groups = [(name, updates) for name, updates in _groups(runs) if len(updates)]
    totals = [float(updates[[*TIMES]].to_numpy(np.float64).sum()) or 1.0 for _, updates in groups]
    series = [
        Series(
            words,
            tuple(name for name, _ in groups),
            tuple(
                100 * float(updates[column].to_numpy(np.float64).sum()) / total
                for (_, updates), total in zip(groups, totals, strict=True)
            ),
            len(groups),
            "bars",
        )
        for column, words in TIMES.items()
    ]
    whose = "run" if len(runs) > 1 else "class"
    return Chart(
        "time", "Time of the workers by activity", whose, "share of the time (%)", tuple(series)
    )


def _bytes(runs: Sequence[Run], most: int) -> Chart:
    """Return bytes into the parameter server: three counts for a single run, else on the wire."""
    if len(runs) > 1:
        title, series = ", on the wire", _readings(runs, {"wire_rx_bytes": ""}, 1 / MEGABYTE, most)
    else:
        updates, columns = runs[0].updates, {"tcp_received_bytes": "tcp", "wire_rx_bytes": "wire"}
        total = updates["payload_up_bytes"].cumsum() / MEGABYTE
        payload = curve("payload", updates["time_seconds"], total, most=most)
        title, series = "", (payload, *_readings(runs, columns, 1 / MEGABYTE, most))
    title = f"Bytes into the parameter server{title}"
    return Chart("bytes", title, AXES["time_seconds"][1], "received (MB)", series)


def host_chart(runs: Sequence[RecordedRun], most: int) -> Chart:
    """Return the load of the host during runs."""
    columns = {"host_busy_ratio": "busy", "host_pressure_ratio": "processes waited for a CPU"}
    if len(runs) > 1:
        columns = {"host_busy_ratio": ""}
    series = _readings(runs, columns, 100.0, most)
    return Chart(
        "host", "Load of the host", AXES["time_seconds"][1], "share of the time (%)", series
    )


def _readings(
    runs: Sequence[RecordedRun], columns: Mapping[str, str], scale: float, most: int
) -> tuple[Series, ...]:
    """Return columns of ``traffic.csv`` during the training; without a name, a run's is used."""
    series = []
    for run in runs:
        rows = run.traffic[run.traffic["time_seconds"].notna()]
        for column, name in columns.items():
            y = rows[column].astype("Float64").to_numpy(np.float64, na_value=np.nan) * scale
            series.append(curve(name or run.name, rows["time_seconds"], y, most=most))
    return tuple(series)


def _faults(run: Run, *, alone: bool) -> Chart:
    series = fault_series(
        run.entries,
        lambda node: float(node.removeprefix("w")) if WORKER.fullmatch(node) else None,
    )
    title = "Faults" if alone else f"Faults of {run.name}"
    name = "faults" if alone else f"faults-{run.name}"
    return Chart(name, title, AXES["time_seconds"][1], "worker", series)


def fault_series(
    entries: Sequence[Entry], number: Callable[[str], float | None]
) -> tuple[Series, ...]:
    """Return which nodes had faults, and from when to when; a point for a fault never undone.

    Args:
        entries: the events of a run.
        number: returns the position of a node on the vertical axis; None leaves the node out.
    """
    found: dict[str, list[tuple[float, float, float]]] = {}
    for fault in RunHistory.of(entries).faults:
        at = number(fault.node)
        if at is not None:
            end = fault.begin if fault.end is None else fault.end
            found.setdefault(fault.kind, []).append((at, fault.begin, end))
    series = []
    for kind, spans in found.items():
        kept = spans[:: -(-3 * len(spans) // MOST_POINTS)]
        x: list[float | str | None] = []
        y: list[float | None] = []
        for at, begin, end in kept:
            x += [begin, end, None]
            y += [at, at, None]
        series.append(Series(kind, tuple(x), tuple(y), 3 * len(spans)))
    return tuple(series)
