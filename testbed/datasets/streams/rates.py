"""Samples per second of each device: given, or drawn as in ScaDLES's Table I.

S. Tyagi, M. Swany, "ScaDLES: scalable deep learning over streaming data at the edge", IEEE Big Data
2022. The paper gives means and standard deviations; a uniform law with these has the range
mean ± √3 deviations. Draws are rounded, and clipped to a range.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from math import sqrt
from typing import Annotated, Literal

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from pydantic import Field

from testbed.values.family import Named
from testbed.values.fields import PerSecond, StrictModel

Clip = tuple[float, float]
"""The minimum and the maximum rate."""

CLIP: Clip = (8.0, 1024.0)
"""The paper's range."""


class RatesConfig(StrictModel, ABC):
    """Base of the options for rates."""

    @property
    def given(self) -> Sequence[float]:
        """The rates given in the scenario; empty for drawn rates."""
        return ()

    @abstractmethod
    def of(self, devices: int, *, clip: Clip | None, rng: Generator) -> Sequence[float]:
        """Return the rate of each device, by index; drawn rates are within ``clip``."""


class ConstantRate(RatesConfig):
    """The same rate for all devices.

    Attributes:
        per_second: samples per emulated second.
    """

    name: Literal["constant"]
    per_second: PerSecond

    @property
    def given(self) -> Sequence[float]:
        return (self.per_second,)

    def of(self, devices: int, *, clip: Clip | None, rng: Generator) -> Sequence[float]:
        return (self.per_second,) * devices


class Each(RatesConfig):
    """A rate for each device, in the order of the workers.

    Attributes:
        per_second: samples per emulated second of w0, w1, ...
    """

    name: Literal["each"]
    per_second: Annotated[tuple[PerSecond, ...], Field(min_length=1, strict=False)]

    @property
    def given(self) -> Sequence[float]:
        return self.per_second

    def of(self, devices: int, *, clip: Clip | None, rng: Generator) -> Sequence[float]:
        return self.per_second


class _Drawn(RatesConfig):
    """Rates that are drawn once for each device.

    Attributes:
        mean: mean of the law, in samples per emulated second.
        deviation: standard deviation of the law.
    """

    mean: Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)]
    deviation: PerSecond

    def of(self, devices: int, *, clip: Clip | None, rng: Generator) -> Sequence[float]:
        return rounded(self._draw(devices, rng), clip)

    @abstractmethod
    def _draw(self, devices: int, rng: Generator) -> NDArray[np.float64]: ...


class Uniform(_Drawn):
    """Rates drawn from a uniform law: between mean ± √3 deviations."""

    name: Literal["uniform"]

    def _draw(self, devices: int, rng: Generator) -> NDArray[np.float64]:
        half = sqrt(3) * self.deviation
        return rng.uniform(self.mean - half, self.mean + half, devices)


class Normal(_Drawn):
    """Rates drawn from a normal law."""

    name: Literal["normal"]

    def _draw(self, devices: int, rng: Generator) -> NDArray[np.float64]:
        return rng.normal(self.mean, self.deviation, devices)


TABLE_1: dict[str, Uniform | Normal] = {
    "S1": Uniform(name="uniform", mean=38, deviation=24),
    "S2": Uniform(name="uniform", mean=300, deviation=112),
    "S1'": Normal(name="normal", mean=64, deviation=24),
    "S2'": Normal(name="normal", mean=256, deviation=28),
}
"""The sets of the paper's Table I."""


class Table1(RatesConfig):
    """One of the four sets of ScaDLES's Table I.

    Attributes:
        set: S1 and S2 are uniform with mean 38 and 300, S1' and S2' normal with mean 64 and 256.
    """

    name: Literal["table1"]
    set: Literal["S1", "S2", "S1'", "S2'"]

    def of(self, devices: int, *, clip: Clip | None, rng: Generator) -> Sequence[float]:
        return TABLE_1[self.set].of(devices, clip=clip, rng=rng)


Rates = Annotated[ConstantRate | Each | Uniform | Normal | Table1, Named()]


def rounded(drawn: NDArray[np.float64], clip: Clip | None) -> Sequence[float]:
    """Round draws to whole samples per second, never negative, within ``clip``."""
    least, largest = clip or (0.0, np.inf)
    return [float(rate) for rate in np.clip(np.round(drawn), least, largest)]
