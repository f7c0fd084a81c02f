"""CIFAR-10: photographs of ten classes, 32x32 pixels in colour, 50,000 and 10,000.

A. Krizhevsky: Learning multiple layers of features from tiny images, technical report, University
of Toronto, 2009. Pixels are 0..255, red, green and blue, and standardised per image; with
``augment``, they are stored raw, and every training batch is distorted at random.

The archive of the binary version, compressed or not, is searched in ``$TESTBED_DATA/cifar10``,
``$TESTBED_DATA`` and the cache, and otherwise downloaded. A record in it is a label and then 1,024
red, 1,024 green and 1,024 blue bytes, row by row.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from testbed.datasets.base import DatasetConfig
from testbed.datasets.files import Archive, FileLocations
from testbed.datasets.prepared import (
    Prepared,
    RawImages,
    Transform,
    distorted,
    prepare_once,
    standardised,
)

CLASSES = 10
SHAPE = (3, 32, 32)
URLS = ("https://www.cs.toronto.edu/~kriz",)
ARCHIVE = Archive(
    "cifar-10-binary.tar",
    {
        f"cifar-10-batches-bin/{name}.bin": sha256
        for name, sha256 in {
            "data_batch_1": "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
            "data_batch_2": "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
            "data_batch_3": "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
            "data_batch_4": "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
            "data_batch_5": "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
            "test_batch": "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
        }.items()
    },
)
"""The last member is the test set."""


class Cifar10(DatasetConfig):
    """Colour photographs of 32x32 pixels, 50,000 for training and 10,000 for testing.

    Attributes:
        batches: how many of the five training batches of 10,000 images to use, in their order.
        augment: whether to flip training images and change their brightness and contrast at random.
    """

    images = (SHAPE, CLASSES)
    test_images = 10_000

    name: Literal["cifar10"]
    batches: Annotated[int, Field(ge=1, le=5, strict=True)] = 5
    augment: Annotated[bool, Field(strict=True)] = False

    @property
    def pixel_bytes(self) -> int:
        return 1 if self.augment else super().pixel_bytes

    def prepare(self, cache: Path, *, environment: Mapping[str, str], folder: Path) -> Path:
        """Prepare the data set. The archive is read only if the data set is not prepared yet."""
        return prepare_cifar10(
            cache, environment=environment, batches=self.batches, raw=self.augment
        )

    def make_ready(self, folder: Path) -> Transform | None:
        """Return the distortion if ``augment`` is set."""
        return distorted if self.augment else None


def prepare_cifar10(
    cache: Path,
    *,
    environment: Mapping[str, str],
    archive: Archive = ARCHIVE,
    urls: Sequence[str] = URLS,
    batches: int = 5,
    raw: bool = False,
) -> Path:
    """Implement ``Cifar10.prepare`` for any archive of its format; ``raw`` keeps raw images."""
    *training, test = archive.members.items()
    archive = replace(archive, members=dict([*training[:batches], test]))
    places = FileLocations.of("cifar10", cache, environment=environment, urls=urls)
    sums = hashlib.sha256("".join(archive.members.values()).encode()).hexdigest()
    target = cache / "prepared" / f"cifar10-{'raw-' if raw else ''}1-{sums[:8]}"
    return prepare_once(target, lambda: _read(archive, places, raw=raw))


def _read(archive: Archive, places: FileLocations, *, raw: bool) -> Prepared:
    members = archive.read(places.find(archive))
    records = [
        np.frombuffer(member, np.uint8).reshape(-1, 1 + np.prod(SHAPE)) for member in members
    ]
    train, test = np.concatenate(records[:-1]), records[-1]

    def images(half: NDArray[np.uint8]) -> RawImages:
        pixels = half[:, 1:].reshape(-1, *SHAPE)
        return pixels if raw else standardised(pixels)

    return Prepared(
        train_images=images(train),
        train_labels=train[:, 0].astype(np.int64),
        test_images=images(test),
        test_labels=test[:, 0].astype(np.int64),
        classes=CLASSES,
        source={
            "name": "cifar10",
            **{Path(name).name: f"sha256 {sha256}" for name, sha256 in archive.members.items()},
        },
    )
