"""Handwritten digits of 8x8 pixels that come with scikit-learn: 1,797 images, no download.

E. Alpaydin, C. Kaynak: Optical recognition of handwritten digits, UCI Machine Learning Repository,
1998 (its test set). The test set has a fixed random choice of 36 images per digit, 360 in total;
the other 1,437 are for training. Pixels are 0..16 and standardised per image.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import numpy as np

from testbed.datasets.base import DatasetConfig
from testbed.datasets.prepared import Prepared, prepare_once, standardised
from testbed.values.seeds import stream

CLASSES = 10
TEST_IMAGES_PER_CLASS = 36


class Digits(DatasetConfig):
    """Handwritten digits of 8x8 pixels, 1,437 for training and 360 for testing; no download."""

    images = ((1, 8, 8), 10)
    test_images = 360

    name: Literal["digits"]

    def prepare(self, cache: Path, *, environment: Mapping[str, str], folder: Path) -> Path:
        return prepare_once(cache / "prepared" / "digits-1", _read)


def _read() -> Prepared:
    from sklearn.datasets import load_digits

    pixels, digits = load_digits(return_X_y=True)
    images = standardised(pixels.astype(np.uint8).reshape(-1, 8, 8))
    labels = digits.astype(np.int64)
    rng = stream(0, "digits", "split")
    of_class = [rng.permutation(np.flatnonzero(labels == c)) for c in range(CLASSES)]
    test = np.sort(np.concatenate([samples[:TEST_IMAGES_PER_CLASS] for samples in of_class]))
    train = np.setdiff1d(np.arange(len(labels)), test)
    source = {"name": "digits", "of": "sklearn.datasets.load_digits"}
    halves = images[train], labels[train], images[test], labels[test]
    return Prepared(*halves, classes=CLASSES, source=source)
