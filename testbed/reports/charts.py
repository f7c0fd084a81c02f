"""Charts of runs as data, independent of the renderer: a browser or a printed page.

A curve keeps at most ``MOST_POINTS`` points, including the minimum and maximum of every
interval, so that no spike is lost.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from testbed.reports.history import RunHistory
from testbed.reports.measures import WINDOW, moving_average
from testbed.telemetry.events import read_events

if TYPE_CHECKING:
    import pandas as pd

    from testbed.reports.frames import Run

MOST_POINTS = 2_000
"""Per curve."""

MOST_POINTS_OF_A_PAGE = 40_000
"""For all curves of a page: about 20 bytes each, next to 4.8 MB for the plotting library."""

PACE_WINDOWS = 100
"""Number of time bins in which updates are counted."""

MEGABYTE = 1e6

WORKER = re.compile(r"w\d+")
"""The name of a worker."""

Kind = Literal["line", "points", "bars"]
Numbers = NDArray[np.float64]

TIMES = {
    "compute_seconds": "computing",
    "think_seconds": "thinking",
    "transfer_seconds": "transferring",
    "blocked_seconds": "blocked",
}
"""Activities of a worker, by column of the record of updates."""


@dataclass(frozen=True)
class Series:
    """One curve, point cloud, or colour of bars.

    Attributes:
        name: its name in the legend.
        x: numbers, or the names of bars.
        y: same length as ``x``; None where a line is interrupted.
        total: number of points before thinning.
        kind: how it is drawn.
        low: lower edge of a band around the curve; empty without a band.
        high: upper edge of the band.
    """

    name: str
    x: tuple[float | str | None, ...]
    y: tuple[float | None, ...]
    total: int
    kind: Kind = "line"
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()


@dataclass(frozen=True)
class Chart:
    """A chart; ``name`` is its file name without suffix, ``log`` lists the logarithmic axes."""

    name: str
    title: str
    x_title: str
    y_title: str
    series: tuple[Series, ...]
    log: tuple[Literal["x", "y"], ...] = ()

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


def curve(name: str, x: NDArray[Any], y: NDArray[Any], *, kind: Kind = "line", most: int) -> Series:
    """Return a series of the finite points, thinned to ``most``."""
    known = np.isfinite(x) & np.isfinite(y)
    x, y = x[known], y[known]
    kept = thin(y, most)
    return Series(name, tuple(x[kept].tolist()), tuple(y[kept].tolist()), len(x), kind)


def most_points(curves: int) -> int:
    """Return the maximum number of points per curve for a page with this number of curves."""
    return max(4, min(MOST_POINTS, MOST_POINTS_OF_A_PAGE // max(1, curves)))


def charts_of(runs: Sequence[Run]) -> tuple[Chart, ...]:
    """Return the charts of one run, by device class, or of several runs overlaid."""
    most = most_points(len(_groups(runs)) * 2 + len(runs) * 6)
    made = (
        _evaluated(runs, "accuracy-ingress", "payload_up_bytes", "top1", most),
        _evaluated(runs, "accuracy-time", "time_seconds", "top1", most),
        _evaluated(runs, "loss-time", "time_seconds", "loss", most),
        _staleness(runs, most),
        _pace(runs),
        _time_shares(runs),
        _bytes(runs, most),
        _host(runs, most),
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


_X = {
    "payload_up_bytes": (MEGABYTE, "ingress at the parameter server: payload of all pushes (MB)"),
    "time_seconds": (1.0, "emulated time (s)"),
}
_Y = {"top1": (100.0, "top-1 accuracy (%)"), "loss": (1.0, "loss")}


def _evaluated(runs: Sequence[Run], name: str, against: str, column: str, most: int) -> Chart:
    """Return accuracy or loss during the training; for a single run also its moving average."""
    (x_scale, x_title), (y_scale, y_title) = _X[against], _Y[column]
    series = []
    for run in runs:
        during = run.evaluations[~run.evaluations["final"]]
        x = during[against].to_numpy(np.float64) / x_scale
        y = during[column].to_numpy(np.float64) * y_scale
        alone = len(runs) == 1
        series.append(curve("one evaluation" if alone else run.name, x, y, most=most))
        if alone and len(y) >= WINDOW:
            smooth = moving_average(during[column]).to_numpy(np.float64) * y_scale
            series.append(curve(f"mean of the last {WINDOW}", x, smooth, most=most))
    return Chart(
        name,
        f"{_what(y_title).capitalize()} against {_what(x_title)}",
        x_title,
        y_title,
        (*series,),
    )


def _what(title: str) -> str:
    return title.partition(" (")[0].partition(" at ")[0]


def _staleness(runs: Sequence[Run], most: int) -> Chart:
    series = [
        curve(
            name,
            updates["time_seconds"].to_numpy(np.float64),
            updates["staleness"].to_numpy(np.float64),
            kind="points",
            most=most,
        )
        for name, updates in _groups(runs)
    ]
    title, x_title = "Staleness of every update", _X["time_seconds"][1]
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
    return Chart("pace", title, _X["time_seconds"][1], "updates per emulated second", tuple(series))


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
    series = []
    for run in runs:
        of_run = [] if len(runs) > 1 else [_payload(run, most)]
        counted = (
            {"wire_rx_bytes": "wire"}
            if len(runs) > 1
            else {
                "tcp_received_bytes": "tcp",
                "wire_rx_bytes": "wire",
            }
        )
        for column, words in counted.items():
            name = words if len(runs) == 1 else run.name
            of_run.append(_reading(run, column, name, 1 / MEGABYTE, most))
        series += of_run
    title = "Bytes into the parameter server" + (", on the wire" if len(runs) > 1 else "")
    return Chart("bytes", title, _X["time_seconds"][1], "received (MB)", tuple(series))


def _payload(run: Run, most: int) -> Series:
    time = run.updates["time_seconds"].to_numpy(np.float64)
    total = run.updates["payload_up_bytes"].to_numpy(np.float64).cumsum() / MEGABYTE
    return curve("payload", time, total, most=most)


def _host(runs: Sequence[Run], most: int) -> Chart:
    columns = {"host_busy_ratio": "busy"}
    if len(runs) == 1:
        columns["host_pressure_ratio"] = "processes waited for a CPU"
    series = [
        _reading(run, column, words if len(runs) == 1 else run.name, 100.0, most)
        for run in runs
        for column, words in columns.items()
    ]
    title = "Load of the host"
    return Chart("host", title, _X["time_seconds"][1], "share of the time (%)", tuple(series))


def _reading(run: Run, column: str, name: str, scale: float, most: int) -> Series:
    """Return a column of ``traffic.csv`` during the training."""
    rows = run.traffic[run.traffic["time_seconds"].notna()]
    y = rows[column].astype("Float64").to_numpy(np.float64, na_value=np.nan) * scale
    return curve(name, rows["time_seconds"].to_numpy(np.float64), y, most=most)


def _faults(run: Run, *, alone: bool) -> Chart:
    """Return which workers had faults, and from when to when; a point for a fault never undone."""
    found: dict[str, list[tuple[float, float, float]]] = {}
    for fault in RunHistory.of(read_events(run.folder.events)).faults:
        if WORKER.fullmatch(fault.node):
            end = fault.begin if fault.end is None else fault.end
            number = float(fault.node.removeprefix("w"))
            found.setdefault(fault.kind, []).append((number, fault.begin, end))
    series = []
    for kind, spans in found.items():
        kept = spans[:: -(-3 * len(spans) // MOST_POINTS)]
        x: list[float | str | None] = []
        y: list[float | None] = []
        for at, begin, end in kept:
            x += [begin, end, None]
            y += [at, at, None]
        series.append(Series(kind, tuple(x), tuple(y), 3 * len(spans)))
    title = "Faults" if alone else f"Faults of {run.name}"
    name = "faults" if alone else f"faults-{run.name}"
    return Chart(name, title, _X["time_seconds"][1], "worker", tuple(series))
