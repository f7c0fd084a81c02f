"""Partitions that give each worker a mixture of labels of its own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from testbed.datasets.partitions.base import (
    PartitionConfig,
    Samples,
    proportional_sizes,
    shuffled_by_label,
)
from testbed.errors import ScenarioError


class ByLabel(PartitionConfig):
    """Every worker has samples of a given number of labels.

    Each label is assigned to about equally many workers, which share its samples equally. If there
    are fewer of these than labels, some labels are not used.

    Attributes:
        labels_per_worker: number of labels per worker.
    """

    NEEDS_LABELS = True

    name: Literal["by_label"]
    labels_per_worker: Annotated[int, Field(ge=1, strict=True)] = 2

    def assign(
        self, chosen: Samples, labels: Samples, workers: int, *, rng: np.random.Generator
    ) -> list[Samples]:
        pools, each = shuffled_by_label(chosen, labels, rng), self.labels_per_worker
        if each > len(pools):
            expected = f"at most {len(pools)}, the number of labels"
            raise ScenarioError.at("dataset.partition.labels_per_worker", str(each), expected)
        owners: list[list[int]] = [[] for _ in pools]
        for worker in rng.permutation(workers):  # takes the labels with the fewest owners so far
            counts = np.array([len(who) for who in owners])
            for label in np.argsort(counts + rng.random(len(pools)))[:each]:
                owners[label].append(int(worker))
        parts: list[list[Samples]] = [[] for _ in range(workers)]
        for pool, who in zip(pools, owners, strict=True):
            if who:
                for worker, part in zip(who, np.array_split(pool, len(who)), strict=True):
                    parts[worker].append(part)
        return [np.concatenate(part) for part in parts]


class DirichletLabels(PartitionConfig, ABC):
    """Base of partitions with labels mixed by a draw from a symmetric Dirichlet law.

    T. H. Hsu, H. Qi, M. Brown: Measuring the effects of non-identical data distribution for
    federated visual classification, 2019, arXiv:1909.06335. When the samples of a label are used
    up, a worker gets more of its other labels.

    Attributes:
        alpha: parameter of the law: small values give few labels per worker, large values even
            mixtures.
    """

    NEEDS_LABELS = True

    alpha: Annotated[float, Field(ge=0.001, le=1e6, strict=True)] = 0.5

    @abstractmethod
    def sizes(self, samples: int, workers: int) -> Samples:
        """Return the number of samples of each worker, in the order of a permutation of them."""

    def assign(
        self, chosen: Samples, labels: Samples, workers: int, *, rng: np.random.Generator
    ) -> list[Samples]:
        pools = shuffled_by_label(chosen, labels, rng)
        left = np.array([len(pool) for pool in pools])
        sizes = self.sizes(len(chosen), workers)
        assigned: list[Samples] = [np.empty(0, np.int64)] * workers
        for worker, size in zip(rng.permutation(workers), sizes.tolist(), strict=True):
            counts = _draw(self.alpha, size, left, rng=rng)
            ends = zip(pools, left, counts, strict=True)
            assigned[worker] = np.concatenate([pool[end - take : end] for pool, end, take in ends])
            left = left - counts
        return assigned


class Dirichlet(DirichletLabels):
    """Equally many samples each, with labels mixed by a draw from a symmetric Dirichlet law."""

    name: Literal["dirichlet"]

    def sizes(self, samples: int, workers: int) -> Samples:
        return np.full(workers, samples // workers)


class DirichletBySize(DirichletLabels):
    """Labels mixed as with `dirichlet`, and sizes skewed as with `by_size`.

    Attributes:
        exponent: the worker at rank r has a share of the samples proportional to r to the power
            -exponent.
    """

    name: Literal["dirichlet_by_size"]
    exponent: Annotated[float, Field(ge=0, le=10, strict=True)] = 1.0

    def sizes(self, samples: int, workers: int) -> Samples:
        return proportional_sizes(samples, np.arange(1, workers + 1) ** -self.exponent)


def _draw(alpha: float, size: int, left: Samples, *, rng: np.random.Generator) -> Samples:
    """Return the count of each label: ``size`` draws from a mixture, limited to the rest of each.

    When all labels of the mixture are used up, a new mixture is drawn for the remaining labels.
    """
    counts = np.zeros_like(left)
    weights = np.zeros(len(left))
    while missing := size - counts.sum():
        room = counts < left
        weights[~room] = 0
        if weights.sum() < 1e-9:
            weights[room] = rng.dirichlet(np.full(np.count_nonzero(room), alpha))
        drawn = rng.multinomial(missing, weights / weights.sum())
        counts = np.minimum(counts + drawn, left)
    return counts


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
