"""SUBSTITUTE for the rail stress series of the ADSP paper (AAAI 2020): made by a formula.

The paper's recurrent network learns how the bogies of trains wear out from 44,428 measured
stresses, which may not be passed on. Here as many are drawn, in ``series`` of equal length:

    x[t] = 0.6 sin(2 pi t / 50) + 0.3 sin(2 pi t / 13 + phase) + a[t] + shock[t]
    a[t] = 0.8 a[t - 1] + N(0, sigma)

A shock comes with the probability ``shocks``, from Student's t law with 3 degrees of freedom. The
phase and sigma, 0.2 times U(0.5, 1.5), are each series' own. A sample is a window of 64 points, and
the number to predict a proxy of the damage that the next 64 points do:

    y = log(1e-6 + sum of |x[j] - x[j - 1]|^3 over them)

standardised by the training samples. With a shock in a hundred points there is one in every second
window, nothing before tells of it, and the damage is mostly its own: less than a tenth of y's
variance can be predicted. With rarer ones more of it is sigma's, and can.

The training samples come from the first six sevenths of each series, the test samples from the
rest; they lie one series after the other, so that ``by_order`` gives each of as many workers a
series of its own. Every draw is fixed: the data are the same everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray
from pydantic import Field

from testbed.datasets.base import DatasetConfig
from testbed.datasets.prepared import Images, Prepared, prepare_once
from testbed.seeds import stream
from testbed.values.fields import BelowOne

POINTS = 44_428
WINDOW = 64
Series = NDArray[np.float64]


class SubstituteRail(DatasetConfig):
    """Windows of made-up stress series and the damage to come, SUBSTITUTE for a paper's.

    Attributes:
        series: how many; together they have 44,428 points.
        shocks: the probability of one at a point.
    """

    images = ((1, 1, WINDOW), 0)
    substitute = "substitute-rail, a formula, stands for the ADSP paper's rail stress series"

    name: Literal["substitute-rail"]
    series: Annotated[int, Field(ge=1, le=48, strict=True)] = 18
    shocks: BelowOne = 0.01

    def prepare(self, cache: Path, *, environment: Mapping[str, str], folder: Path) -> Path:
        """See the base class."""
        target = cache / "prepared" / f"substitute-rail-{self.series}-{self.shocks}-1"
        return prepare_once(target, lambda: _read(self.series, self.shocks))


def stresses(count: int, points: int, *, shocks: float, rng: np.random.Generator) -> Series:
    """Series by the formula, shape (count, points)."""
    phases = rng.uniform(0, 2 * np.pi, (count, 1))
    sigmas = 0.2 * rng.uniform(0.5, 1.5, count)
    noise = rng.standard_normal((points, count)) * sigmas
    for t in range(1, points):
        noise[t] += 0.8 * noise[t - 1]
    sizes = rng.standard_t(3, (count, points))
    struck = rng.random((count, points)) < shocks
    turns = 2 * np.pi * np.arange(points)
    waves = 0.6 * np.sin(turns / 50) + 0.3 * np.sin(turns / 13 + phases)
    return np.asarray(waves + noise.T + sizes * struck)


def damages(series: Series) -> Series:
    """The numbers to predict of the windows of one series, shape (windows,).

    The window that begins at t ends before t + 64, and its damage is that of the 64 points behind.
    """
    jumps = np.abs(np.diff(series)) ** 3  # jumps[j - 1] is that from point j - 1 to point j
    sums = sliding_window_view(jumps, WINDOW).sum(1)
    return np.asarray(np.log(1e-6 + sums[WINDOW - 1 :]))


def _read(count: int, shocks: float) -> Prepared:
    length = POINTS // count
    series = stresses(count, length, shocks=shocks, rng=stream(0, "substitute-rail", str(count)))
    cut = length * 6 // 7
    train = [_samples(one[:cut]) for one in series]
    test = [_samples(one[cut:]) for one in series]
    numbers = np.concatenate([damage for _, damage in train])
    scale = numbers.mean(), numbers.std()
    drawn = {"series": str(count), "shocks": str(shocks)}
    source = {"name": "substitute-rail", "of": "SUBSTITUTE: a formula", **drawn}
    return Prepared(*_half(train, *scale), *_half(test, *scale), classes=0, source=source)


def _half(
    samples: Sequence[tuple[Series, Series]], mean: float, deviation: float
) -> tuple[Images, Images]:
    """The windows of all series and what they predict, standardised."""
    windows = np.concatenate([window for window, _ in samples]).astype(np.float32)
    numbers = np.concatenate([damage for _, damage in samples])
    return windows[:, None, None], ((numbers - mean) / deviation).astype(np.float32)


def _samples(series: Series) -> tuple[Series, Series]:
    """The windows of a series that have 64 points behind them, and their damages."""
    damage = damages(series)
    return sliding_window_view(series, WINDOW)[: len(damage)], damage
