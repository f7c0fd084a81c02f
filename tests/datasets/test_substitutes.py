"""The two data sets that are made by a formula."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from testbed.datasets import Prepared, SubstituteChiller, SubstituteRail, load
from testbed.datasets.substitute_chiller import performance
from testbed.datasets.substitute_rail import damages, stresses


def prepared(config: SubstituteChiller | SubstituteRail, folder: Path) -> Prepared:
    return load(config.prepare(folder, environment={}, folder=folder))


def test_a_damage_by_hand() -> None:
    """The first window has points 0 to 63; of the jumps to points 64 to 127 one is 2, one 1."""
    series = np.zeros(129)
    series[64:100] = 2.0  # up at 64, in the damage of the first window, and down at 100
    series[100:] = 1.0
    first, second = damages(series)
    assert first == pytest.approx(np.log(1e-6 + 8 + 1))
    assert second == pytest.approx(np.log(1e-6 + 1))  # its window ends with point 64


def test_series_differ() -> None:
    series = stresses(3, 2000, shocks=0.01, rng=np.random.default_rng(0))
    assert series.shape == (3, 2000)
    waves = 0.6**2 / 2 + 0.3**2 / 2  # variances; that of the autoregression is sigma^2 / .36
    noise = series.var(axis=1) - waves
    assert len(np.unique(noise.round(3))) == 3
    assert np.all(noise > 0.1**2 / 0.36 * 0.8)


@pytest.mark.parametrize("shocks", [0.01, 0.001, 0.0])
def test_shocks_are_as_frequent_as_asked_for(shocks: float) -> None:
    """Nothing else differs; of 100,000 points, four standard deviations around the mean."""
    drawn = [stresses(5, 20_000, shocks=p, rng=np.random.default_rng(0)) for p in (shocks, 0.0)]
    struck = int((drawn[0] != drawn[1]).sum())
    assert abs(struck - 1e5 * shocks) <= 4 * np.sqrt(1e5 * shocks * (1 - shocks))


def test_rail_windows(tmp_path: Path) -> None:
    """44,428 / 18 = 2,468 points each: 2,115 to train, 1,988 windows; 353 to test, 226 windows."""
    data = prepared(SubstituteRail(name="substitute-rail"), tmp_path)
    assert data.train_images.shape == (18 * 1988, 1, 1, 64)
    assert data.test_images.shape == (18 * 226, 1, 1, 64)
    assert data.train_labels.mean() == pytest.approx(0, abs=1e-4)
    assert data.train_labels.std() == pytest.approx(1, abs=1e-4)
    np.testing.assert_array_equal(data.train_images[0, 0, 0, 1:], data.train_images[1, 0, 0, :-1])
    assert "SUBSTITUTE" in data.source["of"]


def test_the_performance_of_a_chiller_by_hand() -> None:
    """6 - .05 x 10 - .1 x 2 + .5 x .5 - .4 x .25 = 5.45."""
    cop = performance(np.array(30.0), np.array(2.0), np.array(0.5))
    assert cop == pytest.approx(5.45)


def test_chiller_days(tmp_path: Path) -> None:
    data = prepared(SubstituteChiller(name="substitute-chiller"), tmp_path)
    assert data.train_images.shape == (5 * 1600, 1, 1, 8)
    assert data.test_images.shape == (5 * 400, 1, 1, 8)
    np.testing.assert_allclose(data.train_images.mean(0), 0, atol=1e-4)
    np.testing.assert_allclose(data.train_images.std(0), 1, atol=1e-3)
    assert 2 < data.train_labels.min() < data.train_labels.max() < 8
    assert "SUBSTITUTE" in data.source["of"]
