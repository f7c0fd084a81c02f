"""The partition of the first paper on FedAvg: shards of sorted samples."""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from testbed.datasets.partitions.base import PartitionConfig, Samples, shuffled_by_label
from testbed.errors import ScenarioError


class SortedShards(PartitionConfig):
    """Samples sorted by label and cut into equal shards, of which every worker gets a few.

    H. B. McMahan, E. Moore, D. Ramage, S. Hampson, B. Agüera y Arcas: Communication-efficient
    learning of deep networks from decentralized data, AISTATS 2017, section 3. The remainder of
    the division is dropped.

    Attributes:
        per_worker: number of shards per worker.
    """

    NEEDS_LABELS = True

    name: Literal["shards"]
    per_worker: Annotated[int, Field(ge=1, strict=True)] = 2

    def assign(
        self, chosen: Samples, labels: Samples, workers: int, *, rng: np.random.Generator
    ) -> list[Samples]:
        count = workers * self.per_worker
        if count > len(chosen):
            expected = f"at most {len(chosen) // workers}: {len(chosen):,} samples are used"
            raise ScenarioError.at("dataset.partition.per_worker", f"{self.per_worker:,}", expected)
        ordered = np.concatenate(shuffled_by_label(chosen, labels, rng))
        size = len(ordered) // count
        shards = ordered[: size * count].reshape(count, size)
        return list(shards[rng.permutation(count)].reshape(workers, -1))
