"""SUBSTITUTE for CIFAR-100: two MNIST digits side by side; their two-digit number is the label.

ScaDLES trains on the hundred classes of CIFAR-100. Here the digits a and b form an image with the
label 10 a + b. Each label has 500 training images, from MNIST's training images, and 100 test
images, from its test images: 50,000 and 10,000 in total, as in CIFAR-100. The images of a digit are
shuffled and used in turn, once as the left and once as the right digit. Every draw is fixed: the
data are the same everywhere.

An image has 32x32 grey pixels: in the pair, 28 by 56, every two horizontal neighbours are averaged,
and a margin of two pixels is added. It is standardised like MNIST images.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from testbed.datasets.base import DatasetConfig
from testbed.datasets.files import FileLocations
from testbed.datasets.mnist import TEST, TRAIN, URLS, Split, read_split, sums_of
from testbed.datasets.prepared import Images, Prepared, prepare_once, standardised
from testbed.values.seeds import stream

DIGITS = 10
CLASSES = DIGITS**2
EACH = {"train": 500, "test": 100}
"""Number of images per label."""
MARGIN = 2
Pixels = NDArray[np.uint8]
Numbers = NDArray[np.int64]


class MnistPair100(DatasetConfig):
    """Pairs of digits, 100 labels, 32x32 pixels, 50,000 and 10,000; SUBSTITUTE for CIFAR-100."""

    images = ((1, 32, 32), CLASSES)
    test_images = 10_000
    substitute = "mnist-pair-100, two digits of MNIST side by side, stands for CIFAR-100"

    name: Literal["mnist-pair-100"]

    def prepare(self, cache: Path, *, environment: Mapping[str, str], folder: Path) -> Path:
        """Prepare the data set. It uses the files of the data set ``mnist``."""
        places = FileLocations.of("mnist", cache, environment=environment, urls=URLS)
        sums = hashlib.sha256("".join(sums_of(TRAIN, TEST).values()).encode()).hexdigest()
        target = cache / "prepared" / f"mnist-pair-100-1-{sums[:8]}"
        return prepare_once(target, lambda: _read(places))


def _read(places: FileLocations) -> Prepared:
    train, test = _half(TRAIN, "train", places), _half(TEST, "test", places)
    source = {"name": "mnist-pair-100", "of": "SUBSTITUTE: pairs of MNIST", **sums_of(TRAIN, TEST)}
    return Prepared(*train, *test, classes=CLASSES, source=source)


def _half(half: Split, name: str, places: FileLocations) -> tuple[Images, Numbers]:
    pixels, digits = read_split(half, places)
    left, right = pairs(digits, each=EACH[name], rng=stream(0, "mnist-pair-100", name))
    return standardised(side_by_side(pixels[left], pixels[right])), label(digits, left, right)


def pairs(digits: Numbers, *, each: int, rng: Generator) -> tuple[Numbers, Numbers]:
    """Return the left and right images of the pairs: ``each`` per label, in random order.

    Each side uses ``10 * each`` images of a digit: the available images in random order, and again
    from the start if there are too few.
    """
    count = DIGITS * each
    own = [np.flatnonzero(digits == digit) for digit in range(DIGITS)]
    sides = [[np.resize(rng.permutation(one), count) for one in own] for _ in range(2)]
    left = np.concatenate(sides[0])  # digit by digit, each paired with every digit in turn
    right = np.stack(sides[1]).reshape(DIGITS, DIGITS, each).swapaxes(0, 1).reshape(-1)
    order = rng.permutation(len(left))
    return left[order], right[order]


def label(digits: Numbers, left: Numbers, right: Numbers) -> Numbers:
    """Return 10 a + b of every pair."""
    return DIGITS * digits[left] + digits[right]


def side_by_side(left: Pixels, right: Pixels) -> NDArray[np.float32]:
    """Join two images of shape (n, 28, 28) to one of (n, 32, 32), each at half its width."""
    pair = np.concatenate([left, right], axis=2).astype(np.float32)
    halved = (pair[:, :, ::2] + pair[:, :, 1::2]) / 2
    return np.pad(halved, ((0, 0), (MARGIN, MARGIN), (MARGIN, MARGIN)))
