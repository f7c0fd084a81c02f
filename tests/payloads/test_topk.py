"""Selection is exact for any gradient: ties, zeros, NaN, infinities, denormals."""

from collections import Counter
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from vectors import floats

from testbed.payloads import Indices, Vector
from testbed.payloads.topk import Quota, drawn, largest, quotas, sparsify

CNN_SIZES = (288, 32, 9216, 32, 200704, 128, 1280, 10)
AWKWARD = (0.0, -0.0, 1.0, -1.0, 0.5, 1e-45, -1e-45, 3e38, float("inf"), -float("inf"))


def by_sorting(values: Vector, count: int) -> list[int]:
    """The definition: by descending magnitude, NaN first, then by index; zeros are not sent."""

    def rank(index: int) -> tuple[float, float, int]:
        value = float(values[index])
        nan = value != value
        return (0.0 if nan else 1.0, 0.0 if nan else -abs(value), index)

    first = sorted(range(len(values)), key=rank)[:count]
    return sorted(index for index in first if values[index] != 0)


@pytest.mark.parametrize(
    ("ratio", "counts"),
    [
        (1.0, CNN_SIZES),
        (0.1, (28, 3, 921, 3, 20070, 12, 128, 1)),
        (0.01, (2, 1, 92, 1, 2007, 1, 12, 1)),
        (0.001, (1, 1, 9, 1, 200, 1, 1, 1)),
        (0.0001, (1, 1, 1, 1, 20, 1, 1, 1)),
    ],
)
def test_quotas_of_the_cnn(ratio: float, counts: tuple[int, ...]) -> None:
    found = quotas(CNN_SIZES, ratio)
    assert tuple(quota.count for quota in found) == counts
    assert found[0].part == slice(0, 288)
    assert found[-1].part == slice(211_680, 211_690)


def test_quotas_add_up_to_the_papers_update_sizes() -> None:
    totals = {c: sum(q.count for q in quotas(CNN_SIZES, c)) for c in (0.1, 0.01, 0.001, 0.0001)}
    assert totals == {0.1: 21_166, 0.01: 2_117, 0.001: 215, 0.0001: 27}


def test_a_quota_is_rounded_down_in_decimal() -> None:
    assert int(0.29 * 100) == 28  # with rounding errors
    assert quotas([100], 0.29) == (Quota(slice(0, 100), 29),)
    assert quotas([1000], 1e-5) == (Quota(slice(0, 1000), 1),)


@pytest.mark.parametrize(
    ("values", "count", "indices"),
    [
        (floats(1, -3, 2, 0.5), 2, [1, 2]),
        (floats(2, -2, 2, -2), 2, [0, 1]),  # ties: the lower index wins
        (floats(1, 2, 1, 1), 3, [0, 1, 2]),
        (floats(0, 5, 0, 0), 3, [1]),  # zeros are not sent to fill the quota
        (floats(0, -0.0, 0), 2, []),
        (floats(1e-45, 0, -1e-45), 1, [0]),  # denormals are not zero
        (floats(1, float("nan"), float("inf"), 3e38), 2, [1, 2]),
        (floats(float("inf"), 1, -float("inf"), 7), 1, [0]),
        (floats(4), 1, [0]),
        (floats(3, 1, 2), 3, [0, 1, 2]),
    ],
)
def test_the_largest_by_hand(values: Vector, count: int, indices: list[int]) -> None:
    found = largest(values, count)
    assert found.tolist() == indices
    assert found.dtype == np.int32


@settings(deadline=None, derandomize=True, max_examples=200, database=None)
@given(
    st.lists(st.sampled_from(AWKWARD) | st.floats(width=32), min_size=1, max_size=60),
    st.integers(1, 60),
)
def test_the_largest_of_short_vectors_are_first_when_sorted(
    values: list[float], count: int
) -> None:
    vector = floats(*values)
    assert largest(vector, min(count, vector.size)).tolist() == by_sorting(vector, count)


def long_vectors() -> dict[str, Vector]:
    """Vectors long enough to be sampled, most of which mislead the sample or are full of ties."""
    rng = np.random.default_rng(5)
    size = 20_011
    normal = rng.standard_normal(size).astype(np.float32)
    sparse = np.where(rng.random(size) < 0.01, normal, np.float32(0))
    in_the_sample = np.zeros(size, np.float32)
    in_the_sample[::61] = normal[::61]
    with_nan = normal.copy()
    with_nan[[17, 4_000, 20_010]] = np.nan, np.inf, -np.inf
    return {
        "normal": normal,
        "nearly all zero": sparse,
        "all zero": np.zeros(size, np.float32),
        "signs": np.sign(normal),
        "few levels": np.round(normal, 1),
        "large only where sampled": in_the_sample,
        "larger where sampled": np.where(in_the_sample != 0, in_the_sample * 100, normal),
        "rising": np.arange(size, dtype=np.float32),
        "not finite": with_nan,
        "mostly not finite": np.where(rng.random(size) < 0.9, np.float32("nan"), normal),
        "denormals": normal * np.float32(1e-42),
    }


@pytest.mark.parametrize("kind", long_vectors())
@pytest.mark.parametrize("count", [1, 2, 20, 200, 333, 2_001, 19_000, 20_011])
def test_the_largest_of_long_vectors_are_first_when_sorted(kind: str, count: int) -> None:
    vector = long_vectors()[kind]
    assert largest(vector, count).tolist() == by_sorting(vector, count)


def test_a_draw_is_uniform_without_replacement_and_ascending() -> None:
    rng = np.random.default_rng(1)
    times: Counter[int] = Counter()
    for _ in range(2_000):
        indices = drawn(floats(1, 2, 3, 4, 5), 2, rng=rng)
        assert indices.dtype == np.int32
        assert indices.size == 2
        assert indices[0] < indices[1]
        times.update(indices.tolist())
    # 2,000 draws of 2 in 5: 800 each, standard deviation sqrt(2000 * 0.4 * 0.6) = 22.
    assert all(abs(times[index] - 800) < 110 for index in range(5))


def test_a_draw_omits_zeros_and_is_reproducible() -> None:
    values = np.where(np.arange(50) % 2, np.float32(1), np.float32(0))
    first = drawn(values, 20, rng=np.random.default_rng(3))
    again = drawn(values, 20, rng=np.random.default_rng(3))
    assert first.tolist() == again.tolist()
    assert 0 < first.size < 20
    assert (first % 2 == 1).all()


def test_a_draw_of_everything_is_everything_but_zeros() -> None:
    assert drawn(floats(1, 0, 3), 3, rng=np.random.default_rng(0)).tolist() == [0, 2]


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_a_draw_includes_values_that_are_not_finite(bad: float) -> None:
    values = np.ones(1_000, np.float32)
    values[617] = bad
    for seed in range(20):
        assert 617 in drawn(values, 1, rng=np.random.default_rng(seed))


def test_sparsify_selects_in_every_part_and_copies() -> None:
    gradient = floats(1, -9, 8, 7, 0, 0, 3)
    update = sparsify(gradient, quotas((4, 2, 1), 0.5), choose=largest)
    assert update.indices.tolist() == [1, 2, 6]  # 2 of 4, 1 of 2 (but zero), 1 of 1
    assert update.values.tolist() == [-9, 8, 3]
    assert update.indices.dtype == np.int32
    assert update.values.dtype == np.float32
    gradient[:] = 0
    assert update.values.tolist() == [-9, 8, 3]


def test_sparsify_of_zeros_is_empty_but_typed() -> None:
    update = sparsify(np.zeros(7, np.float32), quotas((4, 3), 1.0), choose=largest)
    assert (update.indices.size, update.values.size) == (0, 0)
    assert update.indices.dtype == np.int32
    assert update.values.dtype == np.float32


@pytest.mark.parametrize("choose", [largest, partial(drawn, rng=np.random.default_rng(2))])
def test_indices_of_a_whole_model_increase_strictly(choose: partial[Indices]) -> None:
    gradient = np.random.default_rng(0).standard_normal(211_690).astype(np.float32)
    update = sparsify(gradient, quotas(CNN_SIZES, 0.01), choose=choose)
    assert update.indices.size == 2_117
    assert (np.diff(update.indices) > 0).all()
    assert np.array_equal(update.values, gradient[update.indices])
