from __future__ import annotations

from pathlib import Path

import numpy as np

from testbed.datasets import Digits, load


def test_the_split(tmp_path: Path) -> None:
    data = load(Digits(name="digits").prepare(tmp_path, environment={}, folder=tmp_path))
    assert data.image_shape == (1, 8, 8)
    assert len(data.train_labels) == 1437
    assert np.bincount(data.test_labels).tolist() == [36] * 10
    assert np.bincount(data.train_labels).tolist() == [
        *(142, 146, 141, 147, 145),
        *(146, 145, 143, 138, 144),
    ]
    np.testing.assert_allclose(data.train_images.mean(axis=(1, 2, 3)), 0, atol=1e-6)
    np.testing.assert_allclose(data.train_images.std(axis=(1, 2, 3)), 1, atol=1e-5)


def test_training_and_test_images_are_different(tmp_path: Path) -> None:
    data = load(Digits(name="digits").prepare(tmp_path, environment={}, folder=tmp_path))
    train = {image.tobytes() for image in data.train_images}
    assert not train & {image.tobytes() for image in data.test_images}
