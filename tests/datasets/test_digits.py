from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from testbed.datasets import Digits, load
from testbed.datasets.digits import of_sklearn, read_table


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


@pytest.mark.slow
def test_the_file_of_scikit_learn_is_read_without_importing_it(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from testbed.datasets import Digits; "
        f"cache = Path({str(tmp_path)!r}); "
        "Digits(name='digits').prepare(cache, environment={}, folder=cache); "
        "sys.exit('sklearn' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.slow
def test_a_release_that_keeps_the_file_elsewhere_is_asked_for_it(tmp_path: Path) -> None:
    from sklearn.datasets import load_digits  # takes seconds

    pixels, digits = load_digits(return_X_y=True)
    np.testing.assert_array_equal(read_table(tmp_path), np.column_stack([pixels, digits]))
    np.testing.assert_array_equal(read_table(of_sklearn()), read_table(tmp_path))
