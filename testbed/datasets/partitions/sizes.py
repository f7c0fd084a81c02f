"""Partitions that do not look at labels."""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from testbed.datasets.partitions.base import PartitionConfig, Samples, by_size


class Iid(PartitionConfig):
    """A seeded permutation cut into equal parts; the remainder is dropped."""

    name: Literal["iid"]

    def assign(
        self, chosen: Samples, labels: Samples, workers: int, *, rng: np.random.Generator
    ) -> list[Samples]:
        return by_size(chosen, np.ones(workers), rng=rng)


class BySize(PartitionConfig):
    """The worker at rank r has a share of the samples proportional to r to the power -exponent.

    Attributes:
        exponent: 0 gives equal sizes, 1 Zipf's law.
    """

    name: Literal["by_size"]
    exponent: Annotated[float, Field(ge=0, le=10, strict=True)] = 1.0

    def assign(
        self, chosen: Samples, labels: Samples, workers: int, *, rng: np.random.Generator
    ) -> list[Samples]:
        weights = np.arange(1, workers + 1) ** -self.exponent
        return by_size(chosen, rng.permutation(weights), rng=rng)


class ByOrder(PartitionConfig):
    """Equal parts of the data set in its order, the first for w0; the remainder is dropped."""

    name: Literal["by_order"]

    def assign(
        self, chosen: Samples, labels: Samples, workers: int, *, rng: np.random.Generator
    ) -> list[Samples]:
        return list(chosen[: len(chosen) // workers * workers].reshape(workers, -1))


class Shared(PartitionConfig):
    """Every worker has all samples, in its own order."""

    OVERLAPS = True

    name: Literal["shared"]

    def assign(
        self, chosen: Samples, labels: Samples, workers: int, *, rng: np.random.Generator
    ) -> list[Samples]:
        return [chosen] * workers
