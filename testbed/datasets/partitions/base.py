"""The contract of a partition, and what several share. Pure; every draw is from ``rng``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, ClassVar, Self

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

    def opened(self, folder: Path, *, users: Samples | None = None) -> Self:
        """Return the partition with the content of its file, if it has one.

        Args:
            folder: base folder of relative names: the scenario's, or the run's with copies.
            users: number of the user of each training sample, if the data set knows them.

        Raises:
            ScenarioError: the file cannot be read, or there are no users and the partition needs
                them.
        """
        return self

    @abstractmethod
    def assign(
        self, chosen: Samples, labels: Samples, workers: int, *, rng: np.random.Generator
    ) -> list[Samples]:
        """Return the samples of each worker, in any order.

        Args:
            chosen: the samples to assign, ascending indices into the training set.
            labels: of all training samples, by index; zeros for numbers or tokens.
            workers: number of workers; unless partitions overlap, at most that of ``chosen``.
            rng: for every draw; all nodes have the same.

        Raises:
            ScenarioError: the options do not fit these samples.
        """


def by_size(
    chosen: Samples, weights: NDArray[np.floating[Any]], *, rng: np.random.Generator
) -> list[Samples]:
    """Return parts of the samples at random, of sizes in proportion to the weights."""
    sizes = proportional_sizes(len(chosen), weights)
    order = rng.permutation(chosen)
    return np.split(order, np.cumsum(sizes))[: len(sizes)]


def proportional_sizes(samples: int, weights: NDArray[np.floating[Any]]) -> Samples:
    """Return the sizes of parts in proportion to the weights, rounded down."""
    sizes: Samples = np.floor(samples * weights / weights.sum() + 1e-9).astype(np.int64)
    return sizes


def shuffled_by_label(chosen: Samples, labels: Samples, rng: np.random.Generator) -> list[Samples]:
    """Return the chosen samples of each label that has any, in random order."""
    of = labels[chosen]
    return [rng.permutation(chosen[of == label]) for label in np.unique(of)]
