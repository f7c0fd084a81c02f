"""Figures of a study: curves of the mean, with a band from minimum to maximum over the seeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from testbed.reports.figures import INK, SOFT, add_legend, dress, look_of
from testbed.reports.measures import moving_average
from testbed.reports.text_table import csv_text
from testbed.scenario.checks import substitutes
from testbed.studies.document import Curves
from testbed.studies.kept import KeptRun
from testbed.studies.results import Results
from testbed.studies.study import Case, spelled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from testbed.reports.frames import Run

Numbers = NDArray[np.float64]

COLUMNS = 3
PANEL_INCHES = (4.0, 2.9)
SINGLE_INCHES = (8.0, 5.0)
SHADE = 0.18

X = {
    "updates": ("version", 1.0, "updates"),
    "time": ("time_seconds", 1.0, "emulated time (s)"),
    "ingress": ("payload_up_bytes", 1e6, "ingress at the parameter server (MB)"),
    "steps": ("steps", 1.0, "training steps of all workers"),
}
Y = {
    "accuracy": ("top1", 100.0, "accuracy (%)"),
    "top5": ("top5", 100.0, "top-5 accuracy (%)"),
    "loss": ("loss", 1.0, "loss"),
}


@dataclass(frozen=True)
class Curve:
    """One case in a figure; arrays of equal length, in the units of the figure.

    Attributes:
        case: the case.
        seeds: number of seeds.
        x: ascending.
        mean: over the seeds.
        least: minimum over the seeds.
        greatest: maximum over the seeds.
    """

    case: Case
    seeds: int
    x: Numbers
    mean: Numbers
    least: Numbers
    greatest: Numbers


def curve_of(case: Case, wanted: Curves, results: Results) -> Curve | None:
    """Return the curve of a case's valid runs, over the range they all cover; None without one.

    Seeds have evaluations at different times: between two evaluations a run is interpolated
    linearly. The curve has a point at every evaluation of any seed.
    """
    between = wanted.between if results.study.scale == 1 else None  # shorter runs end before it
    lines = [_line(results.run(run), wanted, between) for run in results.valid(case)]
    lines = [(x, y) for x, y in lines if len(x)]
    if not lines:
        return None
    first, last = max(x[0] for x, _ in lines), min(x[-1] for x, _ in lines)
    grid = np.unique(np.concatenate([x for x, _ in lines]))
    grid = grid[(grid >= first) & (grid <= last)]
    if not len(grid):
        return None
    values = np.array([np.interp(grid, x, y) for x, y in lines])
    return Curve(case, len(lines), grid, values.mean(0), values.min(0), values.max(0))


def _line(
    run: Run | KeptRun, wanted: Curves, between: Sequence[float] | None
) -> tuple[Numbers, Numbers]:
    """Return x and y of a run's evaluations during training."""
    during = run.evaluations[~run.evaluations["final"]]
    x_column, x_scale, _ = X[wanted.against]
    y_column, y_scale, _ = Y[wanted.show]
    smooth = moving_average(during[y_column], window=wanted.mean_of)
    there = smooth.notna()
    x = during.loc[there, x_column].to_numpy(np.float64) / x_scale
    drawn = np.append(np.diff(x) > 0, True)[: len(x)]
    if between is not None:
        drawn &= (x >= between[0]) & (x <= between[-1])
    return x[drawn], smooth[there].to_numpy(np.float64)[drawn] * y_scale


def draw(name: str, wanted: Curves, curves: Sequence[Curve], results: Results) -> Figure:
    """Draw the figure: a panel for each combination of the panels' factors, or a single panel."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    panels: dict[tuple[str, ...], list[Curve]] = {}
    for curve in curves:
        levels = dict(curve.case.levels)
        panels.setdefault(tuple(levels[one] for one in wanted.panels), []).append(curve)
    columns = min(COLUMNS, len(panels))
    rows = -(-len(panels) // columns)
    several = len(panels) > 1
    size = (PANEL_INCHES[0] * columns, PANEL_INCHES[1] * rows + 0.5) if several else SINGLE_INCHES
    figure = Figure(figsize=size, facecolor="white", layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).ravel().tolist()
    labels = {curve.case: label_of(curve.case, wanted, curves) for curve in curves}
    places = {label: index for index, label in enumerate(dict.fromkeys(labels.values()))}
    for axes, (combination, inside) in zip(grid, panels.items(), strict=False):
        title = ", ".join(
            spelled(factor, level) for factor, level in zip(wanted.panels, combination, strict=True)
        )
        axes.set_title(title, color=INK, size=11)
        for curve in inside:
            _draw_curve(axes, curve, labels[curve.case], places[labels[curve.case]])
        _finish(axes, wanted, is_scaled=results.study.scale != 1)
    for axes in grid[len(panels) :]:
        axes.set_visible(False)
    for axes in grid[-columns:]:
        axes.set_xlabel(X[wanted.against][2], color=INK)
    averaged = f", mean of {wanted.mean_of}" if wanted.mean_of > 1 else ""
    for axes in grid[::columns]:
        axes.set_ylabel(f"{Y[wanted.show][2]}{averaged}", color=INK)
    add_legend(figure, grid, columns=4)
    figure.suptitle(_title(name, curves, results), color=INK, size=12)
    return figure


def label_of(case: Case, wanted: Curves, curves: Sequence[Curve]) -> str:
    """Return the levels that distinguish a curve from the others, without those of its panel."""
    others = [dict(curve.case.levels) for curve in curves]
    words = [
        spelled(factor, level)
        for factor, level in case.levels
        if factor not in wanted.panels and any(one[factor] != level for one in others)
    ]
    return ", ".join(words) or case.name


def _draw_curve(axes: Axes, curve: Curve, label: str, index: int) -> None:
    look = look_of(index, len(curve.x))
    axes.plot(curve.x, curve.mean, lw=1.6, markersize=4.0, label=label, **look)
    if curve.seeds > 1:
        axes.fill_between(
            curve.x, curve.least, curve.greatest, color=look["color"], alpha=SHADE, linewidth=0
        )


def _finish(axes: Axes, wanted: Curves, *, is_scaled: bool) -> None:
    scale = Y[wanted.show][1]
    if wanted.mark is not None:
        axes.axhline(scale * wanted.mark, color=SOFT, linewidth=0.8, linestyle="--")
    if wanted.range is not None and not is_scaled:  # shorter runs may not get there
        axes.set_ylim(*(scale * end for end in wanted.range))
    for axis, set_scale in (("x", axes.set_xscale), ("y", axes.set_yscale)):
        if axis in wanted.log:
            set_scale("log")
    if (wanted.between is None or is_scaled) and "x" not in wanted.log:
        axes.set_xlim(left=0)
    dress(axes)


def _title(name: str, curves: Sequence[Curve], results: Results) -> str:
    counts = sorted({curve.seeds for curve in curves})
    seeds = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    over = "1 seed" if counts == [1] else f"mean, minimum and maximum of {seeds} seeds"
    scaled = "" if results.study.scale == 1 else f", SCALED by {results.study.scale:g}"
    replaced = any(substitutes(run.scenario) for run in results.study.runs)
    return f"{results.study.name}: {name} ({over}{scaled}{', SUBSTITUTE' if replaced else ''})"


def curves_csv(curves: Sequence[Curve], results: Results, wanted: Curves) -> str:
    """Return the points of a figure's curves as CSV, in the units of its axes."""
    headings = [
        *results.study.factors,
        *("seeds", X[wanted.against][2], f"{Y[wanted.show][2]} mean", "least", "greatest"),
    ]
    rows = [
        [*(level for _, level in curve.case.levels), curve.seeds, *map(float, point)]
        for curve in curves
        for point in zip(curve.x, curve.mean, curve.least, curve.greatest, strict=True)
    ]
    return csv_text(headings, rows)
