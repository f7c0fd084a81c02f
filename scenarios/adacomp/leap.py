"""Looks closely at a leap of the accuracy: does the loss swing as delayed updates would make it?

    python scenarios/adacomp/leap.py RUN FIRST LAST PICTURE

RUN is a run's folder; between the versions FIRST and LAST of its model it was evaluated often.
Prints the mean distance of the maxima of its loss between them, and the one that the staleness of
its own updates lets expect (``stability.py``); draws loss and accuracy.
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray
from stability import Verge, verge

from testbed import Run
from testbed.reports.figures import BLUE, INK, SOFT, dress, write_picture

if TYPE_CHECKING:
    import pandas as pd

ASIDE = 5
"""A maximum is the highest of so many evaluations on each side, as a few images leave noise."""

INCHES = (9.0, 5.0)


def main() -> int:
    """Print and draw."""
    parser = ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path, metavar="RUN")
    parser.add_argument("first", type=int, metavar="FIRST")
    parser.add_argument("last", type=int, metavar="LAST")
    parser.add_argument("picture", type=Path, metavar="PICTURE")
    arguments = parser.parse_args()
    run = Run(arguments.run)
    every, updates = run.evaluations, run.updates
    reached = every["version"].max() if len(every) else 0
    if reached < arguments.last:
        parser.error(f"{arguments.run} ends at {reached:,}: delete it, and run it again")
    seen = every[~every["final"] & every["version"].between(arguments.first, arguments.last)]
    applied = updates["version_applied"].between(arguments.first, arguments.last)
    expected = verge(updates.loc[applied, "staleness"].to_numpy())
    maxima = peaks(seen["loss"].to_numpy())
    sys.stdout.writelines(
        f"{line}\n" for line in report(seen["version"].to_numpy()[maxima], expected)
    )
    write_picture(arguments.picture, draw(seen, maxima))
    return 0


def report(maxima: NDArray[np.int64], expected: Verge | None) -> Iterator[str]:
    """What was measured beside what was to be expected."""
    yield f"maxima of the loss at {', '.join(f'{version:,}' for version in maxima)}"
    if len(maxima) > 1:
        yield f"their mean distance: {np.diff(maxima).mean():.0f} updates"
    if expected is None:
        yield "expected: none, updates with these delays do not swing"
    else:
        yield f"expected on the verge of instability: {expected.loss_period:.0f} updates"
        yield f"which is where learning rate times curvature is {expected.gain:.2f}"


def peaks(losses: NDArray[np.float64]) -> NDArray[np.int64]:
    """Where the loss is highest among its neighbours, once noise is smoothed away."""
    smooth = np.convolve(losses, np.full(ASIDE, 1 / ASIDE), "same")
    return np.array(
        [
            i
            for i in range(ASIDE, len(smooth) - ASIDE)
            if i == i - ASIDE + int(smooth[i - ASIDE : i + ASIDE + 1].argmax())
        ],
        dtype=np.int64,
    )


def draw(seen: pd.DataFrame, maxima: NDArray[np.int64]) -> Figure:
    """Loss above, accuracy below, a line at every maximum of the loss."""
    figure = Figure(figsize=INCHES, facecolor="white", layout="constrained")
    FigureCanvasAgg(figure)
    above, below = figure.subplots(2, 1, sharex=True)
    versions = seen["version"] / 1000
    above.semilogy(versions, seen["loss"], color=BLUE, lw=1.6)
    below.plot(versions, 100 * seen["top1"], color=BLUE, lw=1.6)
    above.set_ylabel("loss", color=INK)
    below.set_ylabel("accuracy (%)", color=INK)
    below.set_xlabel("updates (thousands)", color=INK)
    for axes in (above, below):
        for version in versions.to_numpy()[maxima]:
            axes.axvline(version, color=SOFT, linewidth=0.8, linestyle=":")
        dress(axes)
    return figure


if __name__ == "__main__":
    sys.exit(main())
