"""Charts for printing: one column of a two-column paper wide, as PNG and SVG."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np

from testbed.reports.charts import Chart, Series
from testbed.reports.figures import MOST_NAMES, add_legend, dress, look_of
from testbed.telemetry.files import write_atomically

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLUMN_INCHES = (3.4, 2.4)
"""A column of IEEE, ACM and most other two-column layouts is 3.3 to 3.5 inches wide."""

DPI = 300
X_CHARACTERS, Y_CHARACTERS = 48, 30
"""Characters per line of an axis title."""

POINTS = (".", "x", "+", "1", "*", "_")
HATCHES = ("", "////", "....", "xxxx")
KINDS = ("png", "svg")

PRINT: Any = {
    "font.size": 8,
    "axes.labelsize": 8,
    "legend.fontsize": 7,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "axes.linewidth": 0.6,
    "svg.fonttype": "path",
    "svg.hashsalt": "testbed",
}
"""Text of 7 and 8 points, like captions; SVG files contain their letters as paths."""


def figure_paths(charts: Sequence[Chart], folder: Path) -> list[Path]:
    """Return the paths of the files that ``write_figures`` writes."""
    return [folder / f"{chart.name}.{kind}" for chart in charts for kind in KINDS]


def write_figures(charts: Sequence[Chart], folder: Path) -> list[Path]:
    """Draw all charts into a folder and create it; the same charts give the same bytes."""
    from matplotlib import rc_context

    folder.mkdir(parents=True, exist_ok=True)
    with rc_context(PRINT):  # restores the caller's settings on exit
        for chart in charts:
            figure = draw(chart)
            for kind in KINDS:
                image = io.BytesIO()
                metadata = {"Date": None} if kind == "svg" else None
                figure.savefig(image, format=kind, dpi=DPI, metadata=metadata)
                write_atomically(folder / f"{chart.name}.{kind}", image.getvalue())
    return figure_paths(charts, folder)


def draw(chart: Chart) -> Figure:
    """Draw a chart as a figure without a title, which belongs in the paper's caption."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=COLUMN_INCHES, facecolor="white", layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    below: dict[str, float] = {}
    for index, series in enumerate(chart.series):
        _draw_series(axes, series, index, below)
    axes.set_xlabel(fill(chart.x_title, X_CHARACTERS))
    axes.set_ylabel(fill(chart.y_title, Y_CHARACTERS))
    dress(axes)
    if len(below) > MOST_NAMES:
        axes.set_xticks([])  # too many names to be readable
        axes.set_xlabel(f"{chart.x_title}: {len(below):,}")
    add_legend(figure, [axes], columns=3)
    return figure


def _draw_series(axes: Axes, series: Series, index: int, below: dict[str, float]) -> None:
    """Draw one series; ``below`` is the current height of the bars, by name."""
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
    axes.plot(x, y, label=series.name, linewidth=1.0, markersize=3.0, **look)
    if series.low:
        axes.fill_between(x, series.low, series.high, color=colour, alpha=0.18, linewidth=0)
