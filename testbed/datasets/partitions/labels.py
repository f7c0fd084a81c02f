"""Partitions that give each worker a mixture of labels of its own."""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from testbed.datasets.partitions.base import PartitionConfig, Samples, shuffled_by_label
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


class Dirichlet(PartitionConfig):
    """Equally many samples each, with labels mixed by a draw from a symmetric Dirichlet law.

    T. H. Hsu, H. Qi, M. Brown: Measuring the effects of non-identical data distribution for
    federated visual classification, 2019, arXiv:1909.06335. When the samples of a label are used
    up, a worker gets more of its other labels.

    Attributes:
        alpha: parameter of the law: small values give few labels per worker, large values even
            mixtures.
    """

    NEEDS_LABELS = True

    name: Literal["dirichlet"]
    alpha: Annotated[float, Field(ge=0.001, le=1e6, strict=True)] = 0.5

    def assign(
        self, chosen: Samples, labels: Samples, workers: int, *, rng: np.random.Generator
    ) -> list[Samples]:
        pools = shuffled_by_label(chosen, labels, rng)
        left = np.array([len(pool) for pool in pools])
        size = left.sum() // workers
        assigned: list[Samples] = [np.empty(0, np.int64)] * workers
        for worker in rng.permutation(workers):
            counts = _draw(self.alpha, size, left, rng=rng)
            ends = zip(pools, left, counts, strict=True)
            assigned[worker] = np.concatenate([pool[end - take : end] for pool, end, take in ends])
            left = left - counts
        return assigned


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
