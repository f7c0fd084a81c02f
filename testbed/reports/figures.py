"""Figures of a single run."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed.reports.measures import WINDOW, moving_average
from testbed.reports.table import describe_algorithm, describe_think
from testbed.telemetry.files import write_atomically

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from testbed.reports.frames import Run

SIZE_INCHES = (8.0, 5.0)
DPI = 100
CAPTION_CHARACTERS = 108
INK = "#1f2933"
SOFT = "#7b8794"
BLUE = "#1768ac"
LIGHT = "#9cc4e4"
ORANGE = "#e07a1f"
COLOURS = (BLUE, ORANGE, "#3f8f5b", "#9b5fa5", "#b23a48", "#5c6b73", "#c9a227", "#2a9d8f")
STYLES = ("-", "--", ":", "-.")
MARKERS = ("", "o", "s", "^", "D", "v")
MARKS = 12
"""Markers per curve."""

LETTER, SAMPLE = 0.55, 8
"""Width of a letter relative to its size, and width of a legend's line sample in letters."""

MOST_NAMES = 12
"""Maximum number of curves in a legend, or of bars with labels."""


@dataclass(frozen=True)
class Shown:
    """What to plot of the evaluations: column, scale, label, and the format of a value."""

    column: str
    scale: float
    label: str
    form: str


ACCURACY = Shown("top1", 100.0, "top-1 accuracy (%)", "{:.2f} %")
LOSS = Shown("loss", 1.0, "loss", "{:.5g}")


def write_figure(run: Run, summary: Mapping[str, Any]) -> bool:
    """Draw accuracy against ingress into the run folder; return False without evaluations.

    For regression models, draw the loss.
    """
    if run.evaluations.empty:
        return False
    show = LOSS if run.evaluations["top1"].isna().all() else ACCURACY
    write_picture(run.folder.figure, against_ingress(run.evaluations, summary, show))
    return True


def write_picture(path: Path, figure: Figure) -> None:
    """Write a figure as a PNG file."""
    image = io.BytesIO()
    figure.savefig(image, format="png", dpi=DPI)
    write_atomically(path, image.getvalue())


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
    evaluations: pd.DataFrame, summary: Mapping[str, Any], show: Shown = ACCURACY
) -> Figure:
    """Plot a run's accuracy or loss against the payload pushed until then.

    Dots are single evaluations, the line is their moving average, the diamond is the final
    evaluation on all test images.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=SIZE_INCHES, facecolor="white")
    FigureCanvasAgg(figure)
    axes = figure.add_axes((0.095, 0.195, 0.875, 0.685))
    scale, unit = _unit(float(evaluations["payload_up_bytes"].max()))
    during = evaluations[~evaluations["final"]]
    ingress, values = during["payload_up_bytes"] / scale, during[show.column] * show.scale
    axes.plot(
        ingress, values, "-o", color=LIGHT, linewidth=1, markersize=3.5, label="one evaluation"
    )
    if len(values) >= WINDOW:
        smooth, label = moving_average(values), f"mean of the last {WINDOW}"
        axes.plot(ingress, smooth, color=BLUE, linewidth=2.2, label=label)
    last = evaluations[evaluations["final"]]
    if len(last):
        _draw_final(axes, last["payload_up_bytes"].iloc[-1] / scale, last.iloc[-1], show)
    axes.set_xlabel(f"ingress at the parameter server: payload of all pushes ({unit})", color=INK)
    axes.set_ylabel(show.label, color=INK)
    axes.set_xlim(left=0)
    if show is ACCURACY:
        axes.set_ylim(top=min(102.0, axes.get_ylim()[1] + 2))
    axes.legend(loc="best", frameon=False, labelcolor=INK)
    dress(axes)
    figure.text(0.095, 0.925, _title(summary), color=INK, size=14, weight="bold")
    figure.text(0.095, 0.085, _caption(summary), color=SOFT, size=9, va="top", linespacing=1.5)
    return figure


def _draw_final(axes: Axes, ingress: float, last: pd.Series[Any], show: Shown) -> None:
    value = float(last[show.column]) * show.scale
    axes.plot(
        [ingress], [value], "D", color=ORANGE, markersize=8, mec="white", mew=1.2, zorder=5,
        label=f"all test images, after the end: {show.form.format(value)}",
    )  # fmt: skip


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
