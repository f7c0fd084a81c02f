"""Handwritten digits of 8x8 pixels that come with scikit-learn: 1,797 images, no download.

E. Alpaydin, C. Kaynak: Optical recognition of handwritten digits, UCI Machine Learning Repository,
1998 (its test set). The test set has a fixed random choice of 36 images per digit, 360 in total;
the other 1,437 are for training. Pixels are 0..16 and standardised per image.
"""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

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
    table = read_table(of_sklearn())
    images = standardised(table[:, :-1].astype(np.uint8).reshape(-1, 8, 8))
    labels = table[:, -1].astype(np.int64)
    rng = stream(0, "digits", "split")
    of_class = [rng.permutation(np.flatnonzero(labels == c)) for c in range(CLASSES)]
    test = np.sort(np.concatenate([samples[:TEST_IMAGES_PER_CLASS] for samples in of_class]))
    train = np.setdiff1d(np.arange(len(labels)), test)
    source = {"name": "digits", "of": "sklearn.datasets.load_digits"}
    halves = images[train], labels[train], images[test], labels[test]
    return Prepared(*halves, classes=CLASSES, source=source)


def of_sklearn() -> Path:
    """Return the folder of scikit-learn's data sets, without importing it, which takes seconds."""
    found = find_spec("sklearn")
    package = found.submodule_search_locations if found else None
    return Path(package[0] if package else "", "datasets", "data")


def read_table(folder: Path) -> NDArray[Any]:
    """Return a row per image: its pixels, then its digit.

    A release of scikit-learn that has no such file in the folder is imported, and asked for it.
    """
    file = folder / "digits.csv.gz"
    if file.is_file():
        with gzip.open(file, "rt", encoding="ascii") as lines:
            return np.loadtxt(lines, delimiter=",")
    from sklearn.datasets import load_digits

    pixels, digits = load_digits(return_X_y=True)
    return np.column_stack([pixels, digits])
