"""Eight bits per value, against numbers worked out by hand; unbiased, and within A / s."""

from __future__ import annotations

import numpy as np
import pytest
from vectors import floats

from testbed.payloads.qsgd import Buckets, Norm, decoded, dequantise, quantise


def test_the_last_bucket_of_each_tensor_is_shorter() -> None:
    buckets = Buckets.of([5, 4, 1], 2)
    assert buckets.bounds.tolist() == [0, 2, 4, 5, 7, 9, 10]
    assert (buckets.count, buckets.size) == (6, 10)


def test_a_value_that_is_a_level_is_sent_unchanged() -> None:
    buckets = Buckets.of([5], 3)
    # A = 127 and l = |x|; A = 0.5, where -0.5 is level -127; a scale of 0 is in the next test
    sent = quantise(floats(127, -3, 0, -0.5, 0.5), buckets, rng=np.random.default_rng(0))
    assert sent.scales.tolist() == [127, 0.5]
    assert sent.levels.tolist() == [127, -3, 0, -127, 127]
    assert dequantise(sent, buckets).tolist() == [127, -3, 0, -0.5, 0.5]


def test_zeros_stay_zeros() -> None:
    buckets = Buckets.of([4], 2)
    sent = quantise(floats(0, -0.0, 0, 1), buckets, rng=np.random.default_rng(0))
    assert sent.scales.tolist() == [0, 1]
    assert dequantise(sent, buckets).tolist() == [0, 0, 0, 1]


def test_the_norm_may_be_the_euclidean() -> None:
    buckets = Buckets.of([3], 3)
    sent = quantise(floats(3, 0, -4), buckets, rng=np.random.default_rng(0), norm="l2")
    assert sent.scales.tolist() == [5]
    # 3/5 of 127 is 76.2, 4/5 is 101.6
    first, zero, last = sent.levels.tolist()
    assert (first in (76, 77), zero, last in (-101, -102)) == (True, 0, True)


@pytest.mark.parametrize("norm", ["max", "l2"])
def test_the_mean_of_many_draws_is_the_vector(norm: Norm) -> None:
    rng = np.random.default_rng(3)
    vector = rng.standard_normal(12).astype(np.float32)
    buckets, draws = Buckets.of([7, 5], 4), 10_000
    total = np.zeros(12)
    for _ in range(draws):
        sent = quantise(vector, buckets, rng=rng, norm=norm)
        decoded = dequantise(sent, buckets)
        bound = np.repeat(sent.scales / 127, np.diff(buckets.bounds)) * (1 + 1e-5)
        assert (np.abs(decoded - vector) <= bound).all()
        total += decoded
    # The standard deviation of a draw is at most half a level, that of the mean a hundredth of it.
    assert (np.abs(total / draws - vector) < 5 * bound / 200).all()


def test_many_buckets_are_quantised_like_few() -> None:
    vector = np.random.default_rng(1).standard_normal(2000).astype(np.float32)
    buckets = Buckets.of([1500, 500], 2)  # more than are processed at a time
    sent = quantise(vector, buckets, rng=np.random.default_rng(2))
    largest = np.abs(vector).reshape(-1, 2).max(axis=1)
    assert sent.scales.tolist() == largest.tolist()
    assert sent.flaw(2000) == ""
    assert np.abs(dequantise(sent, buckets) - vector).max() <= largest.max() / 126


def test_values_can_be_added_part_by_part() -> None:
    """300 buckets are processed in several parts; each entry is in one of them."""
    vector = np.random.default_rng(1).standard_normal(600).astype(np.float32)
    buckets = Buckets.of([600], 2)
    sent = quantise(vector, buckets, rng=np.random.default_rng(2))
    total, parts = np.ones(600, np.float32), 0
    for part, values in decoded(sent, buckets):
        total[part] += values
        parts += 1
    assert parts > 1
    assert total.tobytes() == (1 + dequantise(sent, buckets)).tobytes()


def test_a_scale_that_is_not_finite_is_detected() -> None:
    sent = quantise(floats(1, np.inf), Buckets.of([2], 2), rng=np.random.default_rng(0))
    assert not sent.finite
