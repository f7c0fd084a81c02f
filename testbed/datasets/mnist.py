"""MNIST: handwritten digits of 28x28 pixels, 60,000 for training and 10,000 for testing.

Y. LeCun, L. Bottou, Y. Bengio, P. Haffner: Gradient-based learning applied to document recognition,
Proceedings of the IEEE 86(11), 1998. Pixels are 0..255 and standardised per image.

The four IDX files, compressed or not, are searched in ``$TESTBED_DATA/mnist``, ``$TESTBED_DATA``
and the cache, and otherwise downloaded. A file of images has a header of 16 bytes, then a byte per
pixel; a file of labels has a header of 8 bytes, then a byte per label.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from testbed.datasets.base import DatasetConfig
from testbed.datasets.files import FileLocations, SourceFile
from testbed.datasets.prepared import Prepared, prepare_once, standardised

CLASSES = 10
SIDE = 28
IMAGES_HEADER_BYTES, LABELS_HEADER_BYTES = 16, 8
URLS = (
    "https://ossci-datasets.s3.amazonaws.com/mnist",
    "https://storage.googleapis.com/cvdf-datasets/mnist",
)


@dataclass(frozen=True)
class Split:
    """The two files of the training or the test set."""

    images: SourceFile
    labels: SourceFile

    @classmethod
    def of(cls, half: str, *, images: str, labels: str, packed: bool = False) -> Split:
        """Return the files of a half by their SHA-256; see ``SourceFile`` for ``packed``."""
        return cls(
            SourceFile(f"{half}-images-idx3-ubyte", images, packed),
            SourceFile(f"{half}-labels-idx1-ubyte", labels, packed),
        )

    @property
    def files(self) -> tuple[SourceFile, SourceFile]:
        """Both files."""
        return self.images, self.labels


TRAIN = Split.of(
    "train",
    images="ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    labels="65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
)
TEST = Split.of(
    "t10k",
    images="0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    labels="ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
)


class Mnist(DatasetConfig):
    """Handwritten digits of 28x28 pixels, 60,000 for training and 10,000 for testing."""

    images = ((1, 28, 28), 10)
    test_images = 10_000

    name: Literal["mnist"]

    def prepare(self, cache: Path, *, environment: Mapping[str, str], folder: Path) -> Path:
        return prepare_mnist(cache, environment=environment)


def prepare_mnist(
    cache: Path,
    *,
    environment: Mapping[str, str],
    train: Split = TRAIN,
    test: Split = TEST,
    urls: Sequence[str] = URLS,
    dataset: str = "mnist",
) -> Path:
    """Implement ``Mnist.prepare`` for any four files; ``dataset`` is the name of the data set.

    Files in ``TESTBED_DATA`` are read and checked every time: a damaged file is reported even if
    the data set was prepared before.
    """
    shared = dataset == "mnist"  # other data sets have files with the same names
    places = FileLocations.of(dataset, cache, environment=environment, urls=urls, shared=shared)
    files = (*train.files, *test.files)
    sums = "".join(file.sha256 for file in files)
    target = cache / "prepared" / f"{dataset}-1-{hashlib.sha256(sums.encode()).hexdigest()[:8]}"
    if target.exists():
        for file in files:
            if given := places.given_file(file):
                file.read(given)
    return prepare_once(target, lambda: _read(train, test, places))


def _read(train: Split, test: Split, places: FileLocations) -> Prepared:
    train_images, train_labels = read_split(train, places)
    test_images, test_labels = read_split(test, places)
    return Prepared(
        train_images=standardised(train_images),
        train_labels=train_labels,
        test_images=standardised(test_images),
        test_labels=test_labels,
        classes=CLASSES,
        source={"name": places.dataset, **sums_of(train, test)},
    )


def sums_of(*halves: Split) -> dict[str, str]:
    """Return the checksums of the files, by name; for the record."""
    return {file.name: f"sha256 {file.sha256}" for half in halves for file in half.files}


def read_split(half: Split, places: FileLocations) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Read the raw pixels of a half, shape (n, 28, 28), and its labels, shape (n,).

    Raises:
        DataError: a file is missing or damaged.
    """
    pixels, labels = (file.read(places.find(file)) for file in half.files)
    images = np.frombuffer(pixels, np.uint8, offset=IMAGES_HEADER_BYTES).reshape(-1, SIDE, SIDE)
    return images, np.frombuffer(labels, np.uint8, offset=LABELS_HEADER_BYTES).astype(np.int64)
