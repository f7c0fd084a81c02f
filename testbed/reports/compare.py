"""Two runs of one scenario side by side, such as a live and a simulated one: how far apart?

Each measure is compared in a way that suits it: amounts and means by their relative difference,
shares and distributions by the share of updates that would have to change.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

    from testbed.reports.frames import Run


@dataclass(frozen=True)
class Difference:
    """One measure in two runs.

    Attributes:
        measure: what is compared, with its unit.
        first: in the first run; None for a distribution.
        second: in the second run; None likewise.
        ratio: how far apart, as a share: 0 if equal.
    """

    measure: str
    first: float | None
    second: float | None
    ratio: float


def compare(first: Run, second: Run) -> list[Difference]:
    """What two runs measured of the same things; empty if either applied no update."""
    one, other = first.updates, second.updates
    if not len(one) or not len(other):
        return []
    return [*_means(one, other), *_classes(one, other), *_staleness(one, other), *_pace(one, other)]


def _means(one: pd.DataFrame, other: pd.DataFrame) -> Iterator[Difference]:
    columns: Mapping[str, str] = {
        "payload_up_bytes": "payload of a push (bytes, mean)",
        "payload_down_bytes": "payload of a pull (bytes, mean)",
        "staleness": "staleness (updates, mean)",
        "step_scale": "step scale (mean)",
    }
    for column, name in columns.items():
        yield _relative(name, one[column].mean(), other[column].mean())
    scales = [(1 / frame["staleness"].clip(lower=1)).mean() for frame in (one, other)]
    yield _relative("1/max(1, staleness) (mean)", *scales)


def _classes(one: pd.DataFrame, other: pd.DataFrame) -> Iterator[Difference]:
    """Share of the updates that came from each class."""
    shares = [frame["device_class"].value_counts(normalize=True) for frame in (one, other)]
    for name in sorted({str(name) for share in shares for name in share.index}):
        first, second = (float(share.get(name, 0.0)) for share in shares)
        yield Difference(f"share of class {name}", first, second, abs(first - second))


def _staleness(one: pd.DataFrame, other: pd.DataFrame) -> Iterator[Difference]:
    """Largest distance between the two cumulative distributions (Kolmogorov and Smirnov)."""
    samples = [np.sort(frame["staleness"].to_numpy()) for frame in (one, other)]
    values = np.unique(np.concatenate(samples))
    first, second = (np.searchsorted(s, values, side="right") / len(s) for s in samples)
    yield Difference("distribution of staleness", None, None, float(np.abs(first - second).max()))


def _pace(one: pd.DataFrame, other: pd.DataFrame) -> Iterator[Difference]:
    """Emulated seconds between two updates, over the whole run."""
    spans = [frame["time_seconds"].max() / len(frame) for frame in (one, other)]
    yield _relative("time between updates (s, mean)", *spans)


def _relative(measure: str, first: float, second: float) -> Difference:
    larger = max(abs(first), abs(second))
    ratio = abs(first - second) / larger if larger else 0.0
    return Difference(measure, float(first), float(second), float(ratio))
