"""Slim-DP's choice of coordinates, against numbers worked out by hand."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from vectors import floats

from testbed.payloads.core_explorer import draw_explorer, select_core, sizes


@pytest.mark.parametrize(
    ("size", "alpha", "epsilon", "core", "explorer"),
    [
        (10, 0.3, 0.1, 2, 1),
        (10, 1.0, 0.0, 10, 0),
        (10, 0.4, 0.4, 0, 4),
        # (0.3 - 0.15) 10 = 1.5 goes to 2, round(3) - 2 = 1
        (10, 0.3, 0.15, 2, 1),
        # 0.29 of 50 is 14.5, which goes to 14: as floats it would be 14.499999999999998
        (50, 0.29, 0.0, 14, 0),
        # 0.3 of 5 is 1.5, which goes to 2; 0.1 of 5 is 0.5, which goes to 0
        (5, 0.3, 0.2, 0, 2),
        # VGG-16: (0.2 - 0.1) 138,357,544 = 13,835,754.4; 0.2 of it is 27,671,508.8
        (138_357_544, 0.2, 0.1, 13_835_754, 13_835_755),
    ],
)
def test_sizes_are_rounded_decimal_products(
    size: int, alpha: float, epsilon: float, core: int, explorer: int
) -> None:
    assert sizes(size, alpha, epsilon) == (core, explorer)


@pytest.mark.parametrize(
    ("values", "count", "chosen"),
    [
        (floats(1, -5, 3, 2), 2, [1, 2]),
        (floats(2, -2, 2, 2), 2, [0, 1]),  # ties go to the lower index
        (floats(0, 0, 7, 0, -1), 4, [0, 1, 2, 4]),  # zeros fill up, by index
        (floats(0, 0, 0), 2, [0, 1]),
        (floats(1, 2, 3), 3, [0, 1, 2]),
        (floats(1, 2, 3), 0, []),
    ],
)
def test_the_core_is_the_largest(
    values: np.ndarray[tuple[int], np.dtype[np.float32]], count: int, chosen: list[int]
) -> None:
    core = select_core(values, count)
    assert core.tolist() == chosen
    assert core.dtype == np.int32


def test_the_explorer_is_drawn_uniformly_from_all_others() -> None:
    rng = np.random.default_rng(5)
    core = np.array([1, 2, 6], np.int32)
    seen: Counter[int] = Counter()
    for _ in range(3000):
        explorer = draw_explorer(core, 8, 2, rng=rng)
        assert (np.diff(explorer) > 0).all()
        assert explorer.dtype == np.int32
        seen.update(explorer.tolist())
    # 3,000 times 2 of 5: 1,200 each, with a standard deviation of sqrt(3000 0.4 0.6) = 27
    assert seen.keys() == {0, 3, 4, 5, 7}
    assert all(abs(count - 1200) < 5 * 27 for count in seen.values())


def test_the_requested_number_is_drawn_from_many() -> None:
    """Enough entries that each explorer draws different ones: 1,000 of 4,000 others."""
    rng = np.random.default_rng(6)
    core = np.arange(0, 5000, 5, dtype=np.int32)
    seen = np.zeros(5000, np.int64)
    for _ in range(400):
        explorer = draw_explorer(core, 5000, 1000, rng=rng)
        assert explorer.size == 1000
        assert (np.diff(explorer) > 0).all()
        seen[explorer] += 1
    assert seen[core].sum() == 0
    # 400 times 1 of 4: 100 each, with a standard deviation of sqrt(400 0.25 0.75) = 8.7
    others = np.delete(seen, core)
    assert np.abs(others - 100).max() < 5.5 * 8.7
    # First and second half: 400 times 500, with a standard deviation below sqrt(400,000 0.25) = 316
    assert abs(others[:2000].sum() - 200_000) < 5 * 316


def test_all_or_none_of_the_others_may_be_drawn() -> None:
    rng = np.random.default_rng(5)
    core = np.array([0, 3], np.int32)
    assert draw_explorer(core, 5, 3, rng=rng).tolist() == [1, 2, 4]
    assert draw_explorer(core, 5, 0, rng=rng).tolist() == []
    assert draw_explorer(core[:0], 3, 3, rng=rng).tolist() == [0, 1, 2]
