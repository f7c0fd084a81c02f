"""Data sets. The union below lists them; add new data sets to it."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from testbed.datasets.base import DatasetConfig, user_cache
from testbed.datasets.cifar10 import Cifar10
from testbed.datasets.custom import CustomDataset
from testbed.datasets.digits import Digits
from testbed.datasets.fashion_mnist import FashionMnist
from testbed.datasets.mnist import Mnist
from testbed.datasets.mnist_pair_100 import MnistPair100
from testbed.datasets.partition import Partition, shards
from testbed.datasets.prepared import Prepared, load
from testbed.datasets.substitute_chiller import SubstituteChiller
from testbed.datasets.substitute_rail import SubstituteRail
from testbed.values.family import Named

Dataset = Annotated[
    Annotated[
        Cifar10
        | CustomDataset
        | Digits
        | FashionMnist
        | Mnist
        | MnistPair100
        | SubstituteChiller
        | SubstituteRail,
        Field(discriminator="name"),
    ],
    Named(),
]

__all__ = [
    "Cifar10",
    "CustomDataset",
    "Dataset",
    "DatasetConfig",
    "Digits",
    "FashionMnist",
    "Mnist",
    "MnistPair100",
    "Partition",
    "Prepared",
    "SubstituteChiller",
    "SubstituteRail",
    "load",
    "shards",
    "user_cache",
]
