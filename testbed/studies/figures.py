"""Figures of a study: curves of the mean over the seeds, within a band of its interval."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from testbed.reports.charts import Chart, Series, thin, vertical
from testbed.reports.measures import moving_average, values
from testbed.reports.run_measure import series_of
from testbed.reports.table import csv_text
from testbed.studies.document import Curves
from testbed.studies.found import Results
from testbed.studies.kept import StudyResult
from testbed.studies.study import Case, slug, spelled

Numbers = NDArray[np.float64]

X = {
    "updates": ("version", 1.0, "updates"),
    "time": ("time_seconds", 1.0, "emulated time (s)"),
    "ingress": ("payload_up_bytes", 1e6, "ingress at the parameter server (MB)"),
    "steps": ("steps", 1.0, "training steps of all workers"),
    "sent": ("sent_bytes", 1e6, "sent by all nodes (MB)"),
}


def _vertical(wanted: Curves) -> tuple[float, str]:
    """Return the factor and the title of the vertical axis."""
    return (100.0, "accuracy (%)") if wanted.show == "accuracy" else vertical(wanted.column)


@dataclass(frozen=True)
class Curve:
    """One case in a figure; arrays of equal length, in the units of the figure."""

    case: Case
    seeds: int  # number of seeds
    x: Numbers  # ascending
    mean: Numbers  # over the seeds
    least: Numbers  # minimum over the seeds
    greatest: Numbers  # maximum over the seeds
    low: Numbers  # of the interval that the study shows, at each point by itself
    high: Numbers


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
    band = results.study.document.report.shown.around_mean(values)
    return Curve(case, len(lines), grid, values.mean(0), values.min(0), values.max(0), *band)


def _line(
    run: StudyResult, wanted: Curves, between: Sequence[float] | None
) -> tuple[Numbers, Numbers]:
    """Return x and y of a run's scheduled evaluations."""
    during = series_of(run, wanted.column)
    x_column, x_scale, _ = X[wanted.against]
    y_scale, _ = _vertical(wanted)
    smooth = moving_average(values(during, wanted.column), window=wanted.mean_of)
    there = smooth.notna()
    x = during.loc[there, x_column].to_numpy(np.float64) / x_scale
    drawn = np.append(np.diff(x) > 0, True)[: len(x)]
    if between is not None:
        drawn &= (x >= between[0]) & (x <= between[-1])
    return x[drawn], smooth[there].to_numpy(np.float64)[drawn] * y_scale


def curves_of(wanted: Curves, results: Results) -> list[Curve]:
    """Return the curves of all cases of a figure that have one."""
    found = [curve_of(case, wanted, results) for case in results.study.select(wanted.where)]
    return [curve for curve in found if curve is not None]


def charts_of_figure(
    name: str, wanted: Curves, curves: Sequence[Curve], *, scaled: bool, most: int = sys.maxsize
) -> list[Chart]:
    """Return a chart for each combination of the panels' factors, or a single chart.

    Args:
        name: the figure.
        wanted: its fields.
        curves: its curves, at least one.
        scaled: whether the runs are shorter than the study sets, and may not get to its limits.
        most: the maximum number of points per curve.
    """
    panels: dict[tuple[str, ...], list[Curve]] = {}
    for curve in curves:
        levels = dict(curve.case.levels)
        panels.setdefault(tuple(levels[one] for one in wanted.panels), []).append(curve)
    averaged = f", mean of {wanted.mean_of}" if wanted.mean_of > 1 else ""
    scale, y_title = _vertical(wanted)
    limits = None if scaled else wanted.range
    return [
        Chart(
            slug("-".join([name, *levels])),
            ", ".join([name, *levels]),
            X[wanted.against][2],
            f"{y_title}{averaged}",
            tuple(_series(curve, label_of(curve.case, wanted, curves), most) for curve in inside),
            wanted.log,
            panel=", ".join(map(spelled, wanted.panels, levels)),
            mark=None if wanted.mark is None else scale * wanted.mark,
            y_range=limits and tuple(scale * end for end in limits),
            from_zero=(wanted.between is None or scaled) and "x" not in wanted.log,
        )
        for levels, inside in panels.items()
    ]


def _series(curve: Curve, label: str, most: int) -> Series:
    """Return the mean over the seeds, with its band."""
    kept = thin(curve.mean, most)
    x, mean, low, high = (
        tuple(values[kept].tolist()) for values in (curve.x, curve.mean, curve.low, curve.high)
    )
    if curve.seeds == 1:
        return Series(label, x, mean, len(curve.x))
    return Series(label, x, mean, len(curve.x), low=low, high=high)


def label_of(case: Case, wanted: Curves, curves: Sequence[Curve]) -> str:
    """Return the levels that distinguish a curve from the others, without those of its panel."""
    others = (curve.case for curve in curves)
    return ", ".join(case.differing(others, apart_from=wanted.panels)) or case.name


def title_of(name: str, curves: Sequence[Curve], results: Results) -> str:
    """Return the title of a figure: what it averages, and whether runs are scaled."""
    counts = sorted({curve.seeds for curve in curves})
    seeds = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    over = "1 seed" if counts == [1] else f"{_averaged(results)} of {seeds} seeds"
    scaled = "" if results.study.scale == 1 else f", SCALED by {results.study.scale:g}"
    replaced = any(run.substitutes for run in results.study.runs)
    return f"{results.study.name}: {name} ({over}{scaled}{', SUBSTITUTE' if replaced else ''})"


def _averaged(results: Results) -> str:
    interval = results.study.document.report.shown
    return f"mean{',' if interval.kind == 'range' else ' and'} {interval.title}"


def curves_csv(curves: Sequence[Curve], results: Results, wanted: Curves) -> str:
    """Return the points of a figure's curves as CSV, in the units of its axes."""
    headings = [
        *results.study.factors,
        *(
            "seeds",
            X[wanted.against][2],
            f"{_vertical(wanted)[1]} mean",
            "least",
            "greatest",
            "low",
            "high",
        ),
    ]
    rows = [
        [*(level for _, level in curve.case.levels), curve.seeds, *map(float, point)]
        for curve in curves
        for point in zip(
            *(curve.x, curve.mean, curve.least, curve.greatest, curve.low, curve.high), strict=True
        )
    ]
    return csv_text(headings, rows)
