"""The contract of a partition, and what several share. Pure; every draw is from ``rng``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from testbed.values.fields import StrictModel

Samples = NDArray[np.int64]
"""Indices into the training set."""


class PartitionConfig(StrictModel, ABC):
    """Base of every partition's options in a scenario; ``name`` selects the partition.

    Attributes:
        NEEDS_LABELS: whether it requires labels; else it also assigns samples with numbers.
        OVERLAPS: whether a sample may have several workers, of which there may be any number.
    """

    NEEDS_LABELS: ClassVar[bool] = False
    OVERLAPS: ClassVar[bool] = False

    @abstractmethod
    def assign(
        self, chosen: Samples, labels: Samples, workers: int, *, rng: np.random.Generator
    ) -> list[Samples]:
        """Return the samples of each worker, in any order.

        Args:
            chosen: the samples to assign, ascending indices into the training set.
            labels: of all training samples, by index; zeros without labels.
            workers: number of workers; unless partitions overlap, at most that of ``chosen``.
            rng: for every draw; all nodes have the same.

        Raises:
            ScenarioError: the options do not fit these samples.
        """


def by_size(
    chosen: Samples, weights: NDArray[np.float64], *, rng: np.random.Generator
) -> list[Samples]:
    """Return parts of the samples at random, of sizes in proportion to the weights."""
    sizes = np.floor(len(chosen) * weights / weights.sum() + 1e-9).astype(np.int64)
    order = rng.permutation(chosen)
    return np.split(order, np.cumsum(sizes))[: len(sizes)]


def shuffled_by_label(chosen: Samples, labels: Samples, rng: np.random.Generator) -> list[Samples]:
    """Return the chosen samples of each label that has any, in random order."""
    of = labels[chosen]
    return [rng.permutation(chosen[of == label]) for label in np.unique(of)]
