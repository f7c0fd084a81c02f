"""Fashion-MNIST: articles of clothing, 28x28 pixels, 60,000 for training and 10,000 for testing.

H. Xiao, K. Rasul, R. Vollgraf: Fashion-MNIST: a novel image dataset for benchmarking machine
learning algorithms, arXiv:1708.07747, 2017. Pixels are 0..255 and standardised per image.

The four files are named like MNIST's, but have their own folder: ``$TESTBED_DATA/fashion-mnist``,
the cache, a download. They must be compressed: checksums exist only for the compressed files.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from testbed.datasets.base import DatasetConfig
from testbed.datasets.mnist import Split, prepare_mnist

URLS = (
    "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion",
    "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",
)
TRAIN = Split.of(
    "train",
    images="3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
    labels="a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
    packed=True,
)
TEST = Split.of(
    "t10k",
    images="346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
    labels="67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
    packed=True,
)


class FashionMnist(DatasetConfig):
    """Articles of clothing of 28x28 pixels, 60,000 for training and 10,000 for testing."""

    images = ((1, 28, 28), 10)
    test_images = 10_000

    name: Literal["fashion-mnist"]

    def prepare(self, cache: Path, *, environment: Mapping[str, str], folder: Path) -> Path:
        return prepare_mnist(
            cache,
            environment=environment,
            train=TRAIN,
            test=TEST,
            urls=URLS,
            dataset="fashion-mnist",
        )
