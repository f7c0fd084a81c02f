from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from testbed.datasets import MnistPair100, load
from testbed.datasets.mnist_pair_100 import label, pairs, side_by_side


def test_a_pair_by_hand() -> None:
    """28 columns of 10, 20, 10, ... become 14 of 15, after a margin of 2; then 14 of 40."""
    left = np.tile(np.array([10, 20], np.uint8), (1, 28, 14))
    right = np.full((1, 28, 28), 40, np.uint8)
    pair = side_by_side(left, right)
    assert pair.shape == (1, 32, 32)
    assert pair[0, 2].tolist() == [0] * 2 + [15] * 14 + [40] * 14 + [0] * 2
    assert pair[0, :2].max() == pair[0, 30:].max() == 0


def test_labels_have_equal_numbers_of_pairs() -> None:
    """Three images of each digit, 40 times on either side: 13 or 14 times each."""
    digits = np.arange(30) % 10
    left, right = pairs(digits, each=4, rng=np.random.default_rng(0))
    assert np.bincount(label(digits, left, right)).tolist() == [4] * 100
    for side in (left, right):
        assert set(np.bincount(side)) == {13, 14}
    assert len(np.unique(label(digits, left, right)[:50])) > 25  # in random order


@pytest.mark.slow
def test_the_real_pairs(tmp_path: Path, testbed_data: dict[str, str]) -> None:
    given = testbed_data.get("TESTBED_DATA")
    if given is None or not Path(given, "mnist").is_dir():
        pytest.skip("needs mnist: set TESTBED_DATA to a folder that has it")
    config = MnistPair100(name="mnist-pair-100")
    data = load(config.prepare(tmp_path, environment=testbed_data, folder=tmp_path))
    assert data.train_images.shape == (50_000, 1, 32, 32)
    assert data.test_images.shape == (10_000, 1, 32, 32)
    assert np.bincount(data.train_labels).tolist() == [500] * 100
    assert np.bincount(data.test_labels).tolist() == [100] * 100
    assert "SUBSTITUTE" in data.source["of"]
    assert "CIFAR-100" in config.substitute
