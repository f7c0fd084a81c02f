"""Data sets: what is trained on. The union below is the list; a new member is added to it here."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from testbed.datasets.base import DatasetConfig, user_cache
from testbed.datasets.custom import CustomDataset
from testbed.datasets.digits import Digits
from testbed.datasets.mnist import Mnist
from testbed.datasets.partition import Partition, shards
from testbed.datasets.prepared import Prepared, load
from testbed.values.family import Named

Dataset = Annotated[Annotated[CustomDataset | Digits | Mnist, Field(discriminator="name")], Named()]

__all__ = [
    "CustomDataset",
    "Dataset",
    "DatasetConfig",
    "Digits",
    "Mnist",
    "Partition",
    "Prepared",
    "load",
    "shards",
    "user_cache",
]
