"""The data sets that a scenario can name, how workers share them, and how they arrive.

Here: one file per data set, downloads and prepared files, partitions, and the arrival of samples as
streams (``streams``). Not here: models (``models``), the batches of an algorithm
(``algorithms.frame``), the connection to a broker (``roles``). The union below lists the data sets;
README.md says how to add one.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from testbed.datasets.base import DatasetConfig, user_cache
from testbed.datasets.cifar10 import Cifar10
from testbed.datasets.custom import CustomDataset
from testbed.datasets.digits import Digits
from testbed.datasets.fashion_mnist import FashionMnist
from testbed.datasets.huggingface import HuggingFace
from testbed.datasets.leaf import Leaf
from testbed.datasets.made_text import MadeText
from testbed.datasets.mnist import Mnist
from testbed.datasets.mnist_pair_100 import MnistPair100
from testbed.datasets.parquet import Parquet
from testbed.datasets.partitions import Partition, shards
from testbed.datasets.prepared import Prepared, load
from testbed.datasets.substitute_chiller import SubstituteChiller
from testbed.datasets.substitute_rail import SubstituteRail
from testbed.datasets.text import Text
from testbed.values.family import Named

Dataset = Annotated[
    Annotated[
        Cifar10
        | CustomDataset
        | Digits
        | FashionMnist
        | HuggingFace
        | Leaf
        | MadeText
        | Mnist
        | MnistPair100
        | Parquet
        | SubstituteChiller
        | SubstituteRail
        | Text,
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
    "HuggingFace",
    "Leaf",
    "MadeText",
    "Mnist",
    "MnistPair100",
    "Parquet",
    "Partition",
    "Prepared",
    "SubstituteChiller",
    "SubstituteRail",
    "Text",
    "load",
    "shards",
    "user_cache",
]
