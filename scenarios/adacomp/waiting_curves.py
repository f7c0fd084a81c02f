"""Draws the runs of ``waiting_law.py``: accuracy against updates, a panel for each law and rate.

python scenarios/adacomp/waiting_curves.py RUNS PICTURE
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from waiting_law import CASES, LAWS, METHODS, TARGET_RATIO, Case, ended

from testbed import Run
from testbed.reports.figures import BLUE, INK, ORANGE, SOFT, dress, write_picture
from testbed.reports.measures import WINDOW, moving_average

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = {
    "adacomp": BLUE,
    "asgd": ORANGE,
    "comp-asgd": "#3f8f5b",
    "comp-asgd-random": "#9b5fa5",
}
COLUMNS = 3
PANEL_INCHES = (4.0, 2.9)
PERCENT = (80.0, 100.0)
"""What is shown of the axis: the first few thousand updates come from below."""


def main() -> int:
    """Draw what has ended."""
    parser = ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", type=Path, metavar="RUNS")
    parser.add_argument("picture", type=Path, metavar="PICTURE")
    arguments = parser.parse_args()
    write_picture(arguments.picture, draw(arguments.runs))
    return 0


def draw(runs: Path) -> Figure:
    """A panel for each law and learning rate of which a run has ended."""
    panels: dict[tuple[str, float], list[Case]] = {}
    for case in CASES:
        if ended(case, runs):
            panels.setdefault((case.law, case.rate), []).append(case)
    rows = -(-len(panels) // COLUMNS) or 1
    size = PANEL_INCHES[0] * COLUMNS, PANEL_INCHES[1] * rows
    figure = Figure(figsize=size, facecolor="white", layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.subplots(rows, COLUMNS, sharex=True, sharey=True, squeeze=False).ravel()
    for axes, ((law, rate), cases) in zip(grid, panels.items(), strict=False):
        axes.set_title(f"{LAWS[law]}, learning rate {rate:g}", color=INK, size=11)
        _draw_panel(axes, cases, runs)
    for axes in grid[len(panels) :]:
        axes.set_visible(False)
    for axes in grid[-COLUMNS:]:
        axes.set_xlabel("updates (thousands)", color=INK)
    for axes in grid[::COLUMNS]:
        axes.set_ylabel(f"accuracy (%), mean of {WINDOW}", color=INK)
    lines = {
        line.get_label(): line for axes in grid for line in axes.get_legend_handles_labels()[0]
    }
    figure.legend(
        handles=list(lines.values()), loc="outside lower center", ncols=len(METHODS),
        frameon=False, labelcolor=INK,
    )  # fmt: skip
    return figure


def _draw_panel(axes: Axes, cases: Sequence[Case], runs: Path) -> None:
    for case in cases:
        evaluations = Run(runs / case.name).evaluations
        during = evaluations[~evaluations["final"]]
        colour, label = COLOURS[case.method], case.method
        axes.plot(
            during["version"] / 1000, 100 * moving_average(during["top1"]), color=colour, lw=1.6,
            label=label,
        )  # fmt: skip
    axes.axhline(100 * TARGET_RATIO, color=SOFT, linewidth=0.8, linestyle="--")
    axes.set_ylim(*PERCENT)
    axes.set_xlim(left=0)
    dress(axes)


if __name__ == "__main__":
    sys.exit(main())
