"""The data sets that a scenario can name, how workers share them, and how they arrive.

Here: one file per data set, downloads and prepared files, partitions, and the arrival of samples as
streams (``streams``). Not here: models (``models``), the batches of an algorithm
(``algorithms.frame``), the connection to a broker (``roles``). The union below lists the data sets;
README.md says how to add one.
"""

from __future__ import annotations

from typing import Annotated

from testbed.datasets.base import DatasetConfig as DatasetConfig
from testbed.datasets.base import user_cache as user_cache
from testbed.datasets.cifar10 import Cifar10 as Cifar10
from testbed.datasets.custom import CustomDataset as CustomDataset
from testbed.datasets.digits import Digits as Digits
from testbed.datasets.fashion_mnist import FashionMnist as FashionMnist
from testbed.datasets.huggingface import HuggingFace as HuggingFace
from testbed.datasets.leaf import Leaf as Leaf
from testbed.datasets.made_text import MadeText as MadeText
from testbed.datasets.mnist import Mnist as Mnist
from testbed.datasets.mnist_pair_100 import MnistPair100 as MnistPair100
from testbed.datasets.parquet import Parquet as Parquet
from testbed.datasets.partitions import Partition as Partition
from testbed.datasets.partitions import shards as shards
from testbed.datasets.prepared import Prepared as Prepared
from testbed.datasets.prepared import checksums as checksums
from testbed.datasets.prepared import load as load
from testbed.datasets.substitute_chiller import SubstituteChiller as SubstituteChiller
from testbed.datasets.substitute_rail import SubstituteRail as SubstituteRail
from testbed.datasets.text import Text as Text
from testbed.values.family import Named

Dataset = Annotated[
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
    Named(),
]
