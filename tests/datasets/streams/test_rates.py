"""Explicit and drawn rates, and the sets of ScaDLES's Table I."""

from __future__ import annotations

from math import sqrt

import numpy as np
import pytest

from testbed.datasets.streams import ConstantRate, Each, Normal, Table1, Uniform
from testbed.datasets.streams.rates import CLIP, TABLE_1


def rng() -> np.random.Generator:
    return np.random.default_rng(5)


def test_explicit_rates_are_unchanged() -> None:
    assert ConstantRate(name="constant", per_second=64).of(3, clip=CLIP, rng=rng()) == (64, 64, 64)
    each = Each(name="each", per_second=(92, 38.5))
    assert each.of(2, clip=CLIP, rng=rng()) == (92, 38.5)
    assert each.given == (92, 38.5)


@pytest.mark.parametrize("name", TABLE_1)
def test_the_sets_of_table_1_have_its_means_and_deviations(name: str) -> None:
    """Of 4,000 draws the standard error of the mean is deviation / 63. Clipping at 8 raises the
    mean of S1, whose range starts below 0, so it is compared without clipping."""
    law = TABLE_1[name]
    drawn = np.array(law.of(4000, clip=None, rng=rng()))
    if name != "S1":  # a rate is never negative
        assert abs(drawn.mean() - law.mean) < 4 * law.deviation / sqrt(4000)
        assert drawn.std() == pytest.approx(law.deviation, rel=0.05)
    clipped = np.array(Table1(name="table1", set=name).of(4000, clip=CLIP, rng=rng()))  # type: ignore[arg-type]
    assert clipped.min() >= 8
    assert clipped.max() <= 1024
    assert (clipped == np.round(clipped)).all()


def test_a_uniform_law_ends_at_three_halves_of_its_variance() -> None:
    """300 ± √3 112: from 106 to 494."""
    drawn = Uniform(name="uniform", mean=300, deviation=112).of(4000, clip=None, rng=rng())
    assert 106 <= min(drawn) < 110
    assert 490 < max(drawn) <= 494


def test_draws_are_reproducible() -> None:
    law = Normal(name="normal", mean=64, deviation=24)
    assert law.of(5, clip=CLIP, rng=rng()) == law.of(5, clip=CLIP, rng=rng())
