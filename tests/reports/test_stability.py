"""When delayed updates start to oscillate, compared with values worked out by hand."""

from __future__ import annotations

from math import isnan, pi

import numpy as np
import pytest
from numpy.typing import NDArray

from testbed.reports.stability import mean_distance, stability_limit


def grows(gain: float, staleness: NDArray[np.int64]) -> bool:
    """Whether one parameter oscillates, trained with this rate times curvature, step by step."""
    theta = [1.0] * (int(staleness.max()) + 1)
    for s in staleness:
        theta.append(theta[-1] - gain / max(1, s) * theta[-1 - s])
    tail = np.abs(theta)
    return bool(tail[-2000:].max() > tail[2000:4000].max())


def test_a_constant_delay_is_a_quarter_of_a_turn() -> None:
    found = stability_limit(np.full(10, 100))
    assert found is not None
    assert found.period == pytest.approx(4 * 100)
    assert found.loss_period == pytest.approx(2 * 100)
    assert found.gain == pytest.approx(pi / 2)


def test_the_limit_of_two_delays_is_between_theirs() -> None:
    """cos(ω) / 1 + cos(2ω) / 2 = 0: with c = cos(ω), c + (2c² - 1) / 2 = 0, c = (√3 - 1) / 2."""
    found = stability_limit(np.array([1, 2]))
    assert found is not None
    omega = np.arccos((3**0.5 - 1) / 2)
    assert found.period == pytest.approx(2 * pi / omega)
    sine = (np.sin(omega) + np.sin(2 * omega) / 2) / 2
    assert found.gain == pytest.approx(omega / sine)


@pytest.mark.parametrize("law", ["constant", "uniform"])
def test_a_training_settles_below_the_limit_and_not_above(law: str) -> None:
    rng = np.random.default_rng(0)
    size = 20_000
    staleness = np.full(size, 100) if law == "constant" else rng.integers(50, 151, size)
    found = stability_limit(staleness)
    assert found is not None
    assert not grows(0.95 * found.gain, staleness)
    assert grows(1.05 * found.gain, staleness)


def test_exponential_delays_have_no_limit() -> None:
    staleness = np.random.default_rng(0).exponential(200, 20_000).astype(np.int64)
    assert stability_limit(staleness) is None


@pytest.mark.parametrize("staleness", [[0], [0, 0, 0]])
def test_updates_that_are_never_stale_have_no_limit(staleness: list[int]) -> None:
    assert stability_limit(np.array(staleness)) is None


def test_the_distance_between_the_maxima_of_a_loss() -> None:
    """18 evaluations per turn, 20 updates apart, the highest at 180, 540 and so on."""
    versions = np.arange(0, 2000, 20)
    loss = 1 - np.cos(2 * pi * versions / 360)
    assert mean_distance(versions, loss) == pytest.approx(360)
    assert isnan(mean_distance(versions[:18], loss[:18]))  # one maximum has no distance
