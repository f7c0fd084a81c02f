"""Estimates and tests over seeds, against numbers worked by hand."""

from __future__ import annotations

from math import inf, isnan, nan, sqrt
from statistics import NormalDist

import numpy as np
import pytest

from testbed.studies.statistics import (
    Interval,
    IntervalKind,
    estimate,
    holm,
    log_rank,
    median_reached,
    paired,
)

VALUES = [1.0, 2.0, 3.0]  # mean 2, deviation 1
T_975 = 4.302653  # of two degrees of freedom


def show(value: float) -> str:
    return "never" if value == inf else f"{value:.2f}"


@pytest.mark.parametrize(
    ("kind", "low", "high", "shown"),
    [
        ("range", 1, 3, "2.00 (1.00 to 3.00)"),
        ("deviation", 1, 3, "2.00 ± 1.00"),
        ("t", 2 - T_975 / sqrt(3), 2 + T_975 / sqrt(3), "2.00 (-0.48 to 4.48)"),
    ],
)
def test_intervals(kind: IntervalKind, low: float, high: float, shown: str) -> None:
    found = estimate(VALUES, VALUES, Interval(kind))
    assert (found.center, found.deviation) == (2, 1)
    assert (found.low, found.high) == (pytest.approx(low), pytest.approx(high))
    assert found.show(show) == shown


def test_a_bootstrap_interval_repeats_and_agrees_with_the_normal_distribution() -> None:
    interval = Interval("bootstrap", 0.9)
    values = np.random.default_rng(1).normal(size=(400, 2))
    low, high = interval.around_mean(values)
    half = NormalDist().inv_cdf(0.95) * values.std(0) / 20
    np.testing.assert_allclose(low, values.mean(0) - half, atol=0.01)
    np.testing.assert_allclose(high, values.mean(0) + half, atol=0.01)
    np.testing.assert_array_equal(interval.around_mean(values), (low, high))
    alone, _ = interval.around_mean(values[:, 1:])
    np.testing.assert_allclose(alone, low[1:])  # a column does not depend on the others


@pytest.mark.parametrize("kind", ["range", "deviation", "t", "bootstrap"])
def test_one_seed_has_no_interval(kind: IntervalKind) -> None:
    found = estimate([2.0], [2.0], Interval(kind))
    assert found.show(show) == "2.00"
    assert isnan(found.deviation)


def test_what_was_not_measured_has_no_estimate() -> None:
    assert isnan(estimate([1.0, nan], [1, 1], Interval("t")).center)


def test_values_that_were_not_reached_are_censored() -> None:
    """Of five runs three reach it: 4/5, 3/5 and 2/5 of the curve are left at 10, 20 and 30."""
    values = [10.0, 20.0, inf, inf, 30.0]
    assert median_reached(values, [40] * 5, 0.95)[0] == 30
    # of three, one ends at 15 without it: 2/3 are left at 10, and nothing at 20
    assert median_reached([10, inf, 20], [40, 15, 40], 0.95)[0] == 20
    assert median_reached([10, inf, 20], [40, 40, 40], 0.95)[0] == 20
    assert median_reached([10, inf, inf], [40] * 3, 0.95)[0] == inf
    ranged = estimate(values, [40] * 5, Interval())
    assert ranged.show(show) == "median 30.00 (10.00 to never), 3 of 5 reached"
    assert estimate([inf, inf], [40] * 2, Interval("t")).show(show) == "never"


def test_a_curve_of_exactly_a_half_has_its_median_there() -> None:
    """9/10, 7/10, 6/10 and 5/10 are left; as floats multiplied, 0.5000000000000001."""
    values = [1000.0, 2000, 2000, 3000, 4000, *[inf] * 5]
    assert median_reached(values, [5000] * 10, 0.95)[0] == 4000


def test_a_median_has_no_upper_end_where_nothing_is_left_of_the_curve() -> None:
    """At 4, 3/4 are left: 0.13 to 0.96. At 6, after one ended at 5 without it, nothing is left."""
    values, ends = [inf, 6.0, 6, 4], [5.0, 9, 9, 9]
    assert median_reached(values, ends, 0.95) == (6, 4, inf)


def test_the_interval_of_a_median_inverts_that_of_the_curve() -> None:
    """Greenwood's variance on the log-log scale, at each of 9 events among 10 runs."""
    values = [*map(float, range(1, 10)), inf]
    ends = {-1: inf, 1: inf}
    for event in range(9, 0, -1):
        left = (10 - event) / 10
        variance = sum(1 / ((11 - n) * (10 - n)) for n in range(1, event + 1))
        for side in ends:
            if left ** np.exp(side * 1.959964 * sqrt(variance) / np.log(left)) <= 0.5:
                ends[side] = event
    assert median_reached(values, [12] * 10, 0.95) == (5, min(ends.values()), max(ends.values()))


def test_pairs_are_tested_by_their_differences() -> None:
    """Differences 1, 2 and 3: t = 2 sqrt(3); of 8 patterns of signs, two are as extreme."""
    found = paired([3, 5, 7], [2, 3, 4], Interval())
    assert (found.name, found.difference) == ("paired t", 2)
    assert found.low == pytest.approx(2 - T_975 / sqrt(3))
    assert found.high == pytest.approx(2 + T_975 / sqrt(3))
    t = 2 * sqrt(3)
    assert found.p == pytest.approx(1 - t / sqrt(2 + t**2))  # two degrees of freedom, two sides
    assert found.signed_rank == 2 / 8
    equal = paired([3, 4], [2, 3], Interval())
    assert (equal.name, equal.difference, isnan(equal.p)) == ("", 1, True)


def test_the_log_rank_test() -> None:
    """Three events against one: expected 3/6 + 2/5 + 1/4, variance 1/4 + 6/25 + 3/16."""
    found = log_rank(([1, 2, 3], [5] * 3), ([4, inf, inf], [5] * 3))
    z = (3 - 1.15) / sqrt(0.6775)
    assert found.p == pytest.approx(2 * NormalDist().cdf(-z))
    assert isnan(log_rank(([inf], [5]), ([inf], [5])).p)
    assert isnan(log_rank(([1, 2], [5, 5]), ([inf, inf], [inf, inf])).p)  # no end is known
    unmeasured = log_rank(([1, 2, 3], [5] * 3), ([4, inf, nan], [5, 5, inf]))
    assert (unmeasured.name, isnan(unmeasured.p)) == ("", True)


def test_p_values_are_corrected_for_their_number() -> None:
    np.testing.assert_allclose(holm([0.01, 0.04, nan, 0.03]), [0.03, 0.06, nan, 0.06])
    assert holm([0.6, 0.7]) == [1, 1]
