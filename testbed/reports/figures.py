"""Figures as PNG and SVG: charts for a printed page or a study, and the picture of a run."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from testbed.models.metrics import ACCURACY, unit_of
from testbed.reports.charts import COLOURS, Chart, Series, vertical
from testbed.reports.measures import WINDOW, moving_average, scheduled
from testbed.reports.record import metric_columns
from testbed.reports.table import describe_algorithm, describe_think
from testbed.telemetry.files import write_atomically, writing

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from testbed.reports.frames import Run
    from testbed.scenario.schema import Scenario

SIZE_INCHES = (8.0, 5.0)
PANEL_INCHES = (4.0, 2.9)
PANELS_A_ROW = 3
DPI, PRINT_DPI = 100, 300
KINDS = ("png", "svg")
CAPTION_CHARACTERS = 108
X_CHARACTERS, Y_CHARACTERS = 48, 30
"""Characters per line of an axis title in print."""

INK = "#1f2933"
SOFT = "#7b8794"
BLUE, ORANGE = COLOURS[:2]
LIGHT = "#9cc4e4"
SHADE = 0.18
STYLES = ("-", "--", ":", "-.")
MARKERS = ("", "o", "s", "^", "D", "v")
POINTS = (".", "x", "+", "1", "*", "_")
HATCHES = ("", "////", "....", "xxxx")
MARKS = 12
"""Markers per curve."""

LETTER, SAMPLE = 0.55, 8
"""Width of a letter relative to its size, and width of a legend's line sample in letters."""

MOST_NAMES = 12
"""Maximum number of curves in a legend, or of bars with labels."""

STUDY: Any = {
    "figure.figsize": SIZE_INCHES,
    "figure.titlesize": 12,
    "axes.titlesize": 11,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "text.color": INK,
    "lines.linewidth": 1.6,
    "lines.markersize": 4.0,
}

PRINT: Any = {
    "figure.figsize": (3.4, 2.4),  # a column of IEEE, ACM and most others is 3.3 to 3.5 wide
    "font.size": 8,
    "axes.labelsize": 8,
    "legend.fontsize": 7,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "axes.linewidth": 0.6,
    "lines.linewidth": 1.0,
    "lines.markersize": 3.0,
    "svg.fonttype": "path",
}
"""Text of 7 and 8 points, like captions; SVG files contain their letters as paths."""


def write_figure(run: Run, summary: Mapping[str, Any]) -> bool:
    """Draw the first metric against ingress into the run folder; return False without evaluations.

    If it has no values, as accuracies of regression models, draw the loss.
    """
    if run.evaluations.empty:
        return False
    column = next(iter(metric_columns(run.evaluations)), "loss")
    if run.evaluations[column].isna().all():
        column = "loss"
    write_picture(
        run.folder.figure, against_ingress(run.evaluations, run.scenario, summary, column)
    )
    return True


def write_figures(charts: Sequence[Chart], folder: Path) -> list[Path]:
    """Draw charts for print into a folder and create it, one column of a two-column paper wide.

    They have no title, which belongs in the paper's caption.

    Raises:
        HostError: they cannot be written there.
    """
    from matplotlib import rc_context

    paths = []
    with writing(folder), rc_context(PRINT):  # restores the caller's settings on exit
        folder.mkdir(parents=True, exist_ok=True)
        for chart in charts:
            figure = draw([chart])
            for kind in KINDS:
                paths.append(folder / f"{chart.name}.{kind}")
                write_picture(paths[-1], figure, dpi=PRINT_DPI)
    return paths


def write_picture(path: Path, figure: Figure, *, dpi: int = DPI) -> None:
    """Write a figure in the format of the suffix; the same figure gives the same bytes.

    All formats of a figure have the layout of the first: its computation takes a third of the time.
    """
    from matplotlib import rc_context

    image, kind = io.BytesIO(), path.suffix.removeprefix(".")
    with rc_context({"svg.hashsalt": "testbed"}):
        figure.savefig(
            image, format=kind, dpi=dpi, metadata={"Date": None} if kind == "svg" else None
        )
    figure.set_layout_engine("none")
    write_atomically(path, image.getvalue())


def draw(charts: Sequence[Chart], title: str = "") -> Figure:
    """Draw charts as the panels of a figure, which have the same axes and one legend."""
    from matplotlib import rcParams
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    columns = min(PANELS_A_ROW, len(charts))
    rows = -(-len(charts) // columns)
    size = rcParams["figure.figsize"]
    if len(charts) > 1:
        size = PANEL_INCHES[0] * columns, PANEL_INCHES[1] * rows + 0.5
    figure = Figure(figsize=size, facecolor="white", layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).ravel().tolist()
    names = list(dict.fromkeys(series.name for chart in charts for series in chart.series))
    for axes, chart in zip(grid, charts, strict=False):
        _draw_chart(axes, chart, names)
        axes.set_title(chart.panel if title else "")
    for axes in grid[len(charts) :]:
        axes.set_visible(False)
    for axes in grid[-columns:]:
        axes.set_xlabel(axes.get_xlabel() or textwrap.fill(charts[0].x_title, X_CHARACTERS))
    for axes in grid[::columns]:
        axes.set_ylabel(textwrap.fill(charts[0].y_title, Y_CHARACTERS))
    add_legend(figure, grid, columns=4 if title else 3)
    if title:
        figure.suptitle(title)
    return figure


def _draw_chart(axes: Axes, chart: Chart, names: Sequence[str]) -> None:
    """Draw the series, each in the style of its name's index among all names of the figure."""
    below: dict[str, float] = {}  # the current height of the bars, by name
    for series in chart.series:
        _draw_series(axes, series, names.index(series.name), below)
    if chart.mark is not None:
        axes.axhline(chart.mark, color=SOFT, linewidth=0.8, linestyle="--")
    if chart.y_range is not None:
        axes.set_ylim(*chart.y_range)
    for axis in chart.log:
        getattr(axes, f"set_{axis}scale")("log")
    if chart.from_zero:
        axes.set_xlim(left=0)
    dress(axes)
    if len(below) > MOST_NAMES:
        axes.set_xticks([])  # too many names to be readable
        axes.set_xlabel(f"{chart.x_title}: {len(below):,}")


def _draw_series(axes: Axes, series: Series, index: int, below: dict[str, float]) -> None:
    look = look_of(index, len(series.x))
    colour = look["color"]
    if series.kind == "bars":
        names = [str(name) for name in series.x]
        heights = [value or 0.0 for value in series.y]
        bottoms = [below.get(name, 0.0) for name in names]
        hatch = HATCHES[index % len(HATCHES)]
        axes.bar(
            names, heights, bottom=bottoms, color=colour, label=series.name,
            hatch=hatch, edgecolor="white", linewidth=0,
        )  # fmt: skip
        below |= dict(zip(names, np.add(bottoms, heights).tolist(), strict=True))
        return
    x, y = np.array(series.x, np.float64), np.array(series.y, np.float64)  # None becomes NaN
    if series.kind == "points":
        mark = POINTS[index % len(POINTS)]
        axes.plot(x, y, mark, color=colour, markersize=1.5, label=series.name, rasterized=True)
        return
    if np.isnan(y).any():  # a segment of a line may be a single point
        look |= {"marker": look["marker"] or ".", "markevery": 1}
    axes.plot(x, y, label=series.name, **look)
    if series.low:
        axes.fill_between(x, series.low, series.high, color=colour, alpha=SHADE, linewidth=0)


def dress(axes: Axes) -> None:
    """Apply the common style: a light grid behind the curves, and two spines."""
    axes.grid(color="#e4e7eb", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(SOFT)
    axes.tick_params(colors=INK, length=3)


def look_of(index: int, points: int) -> dict[str, Any]:
    """Return the style of the curve at ``index``; curves are distinguishable in greyscale too."""
    return {
        "color": COLOURS[index % len(COLOURS)],
        "linestyle": STYLES[index % len(STYLES)],
        "marker": MARKERS[index // len(STYLES) % len(MARKERS)],
        "markevery": max(1, points // MARKS),
    }


def add_legend(figure: Figure, grid: Sequence[Axes], *, columns: int) -> None:
    """Add a legend below all panels that names every curve once, up to a maximum number."""
    from matplotlib import rcParams
    from matplotlib.font_manager import FontProperties
    from matplotlib.lines import Line2D

    handles: dict[str, Artist] = {}
    for axes in grid:
        found, labels = axes.get_legend_handles_labels()
        handles |= zip(labels, found, strict=True)
    if len(handles) < 2:
        return
    points = FontProperties(size=rcParams["legend.fontsize"]).get_size_in_points()
    characters = int(figure.get_figwidth() * 72 / (LETTER * points))
    named = dict(list(handles.items())[:MOST_NAMES])
    if len(handles) > MOST_NAMES:
        more = f"and {len(handles) - MOST_NAMES:,} more"
        named[more] = Line2D([], [], linestyle="none")
    figure.legend(
        handles=list(named.values()),
        labels=list(named),
        loc="outside lower center",
        ncols=max(1, min(columns, len(named), characters // (SAMPLE + max(map(len, named))))),
        frameon=False,
        labelcolor=INK,
    )


def against_ingress(
    evaluations: pd.DataFrame,
    scenario: Scenario,
    summary: Mapping[str, Any],
    column: str = ACCURACY,
) -> Figure:
    """Plot a run's metric or loss against the payload pushed until then.

    Dots are single evaluations, the line is the moving average of the scheduled ones, the diamond
    is the final evaluation on all test samples.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=SIZE_INCHES, facecolor="white")
    FigureCanvasAgg(figure)
    axes = figure.add_axes((0.095, 0.195, 0.875, 0.685))
    scale, unit = _unit(float(evaluations["payload_up_bytes"].max()))
    during, due = evaluations[~evaluations["final"]], scheduled(evaluations, scenario)
    y_scale, y_title = vertical(column)
    ingress, values = during["payload_up_bytes"] / scale, during[column] * y_scale
    axes.plot(
        ingress, values, "-o", color=LIGHT, linewidth=1, markersize=3.5, label="one evaluation"
    )
    if len(due) >= WINDOW:
        ingress, smooth = due["payload_up_bytes"] / scale, moving_average(due[column]) * y_scale
        label = f"mean of the last {WINDOW}"
        axes.plot(ingress, smooth, color=BLUE, linewidth=2.2, label=label)
    last = evaluations[evaluations["final"]]
    if len(last):
        value = float(last[column].iloc[-1]) * y_scale
        shown = f"{value:.2f} %" if unit_of(column) else f"{value:.5g}"
        axes.plot(
            [last["payload_up_bytes"].iloc[-1] / scale], [value], "D", color=ORANGE, markersize=8,
            mec="white", mew=1.2, zorder=5, label=f"all test samples, after the end: {shown}",
        )  # fmt: skip
    axes.set_xlabel(f"ingress at the parameter server: payload of all pushes ({unit})", color=INK)
    axes.set_ylabel(y_title, color=INK)
    axes.set_xlim(left=0)
    if unit_of(column):
        axes.set_ylim(top=min(102.0, axes.get_ylim()[1] + 2))
    axes.legend(loc="best", frameon=False, labelcolor=INK)
    dress(axes)
    figure.text(0.095, 0.925, _title(summary), color=INK, size=14, weight="bold")
    figure.text(0.095, 0.085, _caption(summary), color=SOFT, size=9, va="top", linespacing=1.5)
    return figure


def _title(summary: Mapping[str, Any]) -> str:
    """Return the scenario's name; say so if the run was simulated or did not finish."""
    notes = ["simulated"] if summary["runtime"] == "simulated" else []
    if summary.get("substitutes"):
        notes.append("SUBSTITUTE")
    if summary["state"] != "finished":
        notes.append("not finished" if summary["ended"] is None else summary["state"])
    if not summary["verdict"]["valid"]:
        notes.append("not valid")
    return f"{summary['scenario']} ({', '.join(notes)})" if notes else str(summary["scenario"])


def _caption(summary: Mapping[str, Any]) -> str:
    """Return the configuration of the training, in one line that fits."""
    text = (
        f"{describe_algorithm(summary['algorithm'])}, {summary['model']} on {summary['dataset']}, "
        f"{summary['workers']} workers, {describe_think(summary)}, "
        f"{summary['updates']['total']:,} updates"
    )
    return textwrap.fill(text, CAPTION_CHARACTERS)


def _unit(largest: float) -> tuple[float, str]:
    """Return the decimal unit that gives readable numbers on the axis."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("KB", 1e3)):
        if largest >= 2 * scale:
            return scale, unit
    return 1.0, "B"
