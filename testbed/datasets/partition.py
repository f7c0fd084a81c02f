"""Partition of the training samples among the workers. Pure; every draw is from ``rng``.

    iid         a seeded permutation, cut into equal parts; the remainder is dropped
    by_label    every worker has samples of a few labels only
    by_size     equal mixtures of labels, sizes by a power law
    dirichlet   equal sizes, mixtures of labels drawn from a Dirichlet law
    by_order    equal parts of the data set in its order; the remainder is dropped
    shared      every worker has all samples

Shards overlap only with ``shared``, and it is an error if a worker would have no sample. The labels
or size of each worker are drawn too, so that they do not depend on its number or class. Samples
with numbers to predict cannot be partitioned by labels.
"""

from __future__ import annotations

from typing import Annotated, Literal, cast

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from testbed.errors import ScenarioError
from testbed.values.family import Named
from testbed.values.fields import StrictModel

Samples = NDArray[np.int64]
"""Indices into the training set."""


class Iid(StrictModel):
    """A seeded permutation cut into equal parts; the remainder is dropped."""

    name: Literal["iid"]


class ByLabel(StrictModel):
    """Every worker has samples of a given number of labels.

    Each label is assigned to about equally many workers, which share its samples equally. If there
    are fewer of these than labels, some labels are not used.

    Attributes:
        labels_per_worker: number of labels per worker.
    """

    name: Literal["by_label"]
    labels_per_worker: Annotated[int, Field(ge=1, strict=True)] = 2


class BySize(StrictModel):
    """The worker at rank r has a share of the samples proportional to r to the power -exponent.

    Attributes:
        exponent: 0 gives equal sizes, 1 Zipf's law.
    """

    name: Literal["by_size"]
    exponent: Annotated[float, Field(ge=0, le=10, strict=True)] = 1.0


class Dirichlet(StrictModel):
    """Equally many samples each, with labels mixed by a draw from a symmetric Dirichlet law.

    T. H. Hsu, H. Qi, M. Brown: Measuring the effects of non-identical data distribution for
    federated visual classification, 2019, arXiv:1909.06335. When the samples of a label are used
    up, a worker gets more of its other labels.

    Attributes:
        alpha: parameter of the law: small values give few labels per worker, large values even
            mixtures.
    """

    name: Literal["dirichlet"]
    alpha: Annotated[float, Field(ge=0.001, le=1e6, strict=True)] = 0.5


class ByOrder(StrictModel):
    """Equal parts of the data set in its order, the first for w0; the remainder is dropped."""

    name: Literal["by_order"]


class Shared(StrictModel):
    """Every worker has all samples, in its own order."""

    name: Literal["shared"]


AnyPartition = Iid | ByLabel | BySize | ByOrder | Dirichlet | Shared
Partition = Annotated[Annotated[AnyPartition, Field(discriminator="name")], Named()]


def shards(
    partition: AnyPartition,
    labels: NDArray[np.int64] | NDArray[np.float32],
    workers: int,
    *,
    fraction: float,
    classes: int,
    rng: np.random.Generator,
) -> list[Samples]:
    """Return the samples of each worker, as ascending indices into the training set.

    ``labels`` holds the label of every training sample, shape (n,), each in [0, classes), or
    numbers if there are no classes; only a ``balanced_subset`` is assigned. The same state of
    ``rng`` gives the same shards on every node.

    Raises:
        ScenarioError: a worker would have no sample, or too few labels, or the partition needs
            labels and there are none.
    """
    if not classes and isinstance(partition, ByLabel | Dirichlet):
        expected = "iid, by_size, by_order or shared: its samples have numbers, not labels"
        raise ScenarioError.at("dataset.partition", partition.name, expected)
    kinds = cast(Samples, labels) if classes else np.zeros(len(labels), np.int64)
    chosen = balanced_subset(kinds, fraction, classes=max(1, classes), rng=rng)
    if isinstance(partition, Shared) and len(chosen):
        return [chosen] * workers
    if len(chosen) < workers:
        raise _too_few(len(chosen), workers, without=workers - len(chosen))
    match partition:
        case Iid():
            assigned = _by_size(chosen, np.ones(workers), rng=rng)
        case BySize(exponent=exponent):
            weights = np.arange(1, workers + 1) ** -exponent
            assigned = _by_size(chosen, rng.permutation(weights), rng=rng)
        case ByOrder():
            assigned = list(chosen[: len(chosen) // workers * workers].reshape(workers, -1))
        case ByLabel(labels_per_worker=each):
            assigned = _by_label(_pools(chosen, kinds, rng), workers, each, rng=rng)
        case Dirichlet(alpha=alpha):
            assigned = _dirichlet(_pools(chosen, kinds, rng), workers, alpha, rng=rng)
    empty = sum(len(shard) == 0 for shard in assigned)
    if empty:
        raise _too_few(len(chosen), workers, without=empty)
    return [np.sort(shard) for shard in assigned]


def balanced_subset(
    labels: Samples, fraction: float, *, classes: int, rng: np.random.Generator
) -> Samples:
    """Return a fraction of the samples, with equally many of each label as far as possible.

    If a label has fewer samples, all are taken, and more of the other labels. The remainder of the
    division goes to the lower labels.
    """
    available = np.bincount(labels, minlength=classes)
    quotas = np.zeros_like(available)
    while missing := round(fraction * len(labels)) - quotas.sum():
        (room,) = np.nonzero(quotas < available)
        grants = missing // len(room) + (np.arange(len(room)) < missing % len(room))
        quotas[room] = np.minimum(quotas[room] + grants, available[room])
    parts = [rng.permutation(np.flatnonzero(labels == c))[:q] for c, q in enumerate(quotas)]
    return np.sort(np.concatenate(parts)).astype(np.int64)


def _pools(chosen: Samples, labels: Samples, rng: np.random.Generator) -> list[Samples]:
    """Return the chosen samples of each label that has any, in random order."""
    of = labels[chosen]
    return [rng.permutation(chosen[of == label]) for label in np.unique(of)]


def _by_size(
    chosen: Samples, weights: NDArray[np.float64], *, rng: np.random.Generator
) -> list[Samples]:
    sizes = np.floor(len(chosen) * weights / weights.sum() + 1e-9).astype(np.int64)
    order = rng.permutation(chosen)
    return np.split(order, np.cumsum(sizes))[: len(sizes)]


def _by_label(
    pools: list[Samples], workers: int, each: int, *, rng: np.random.Generator
) -> list[Samples]:
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


def _dirichlet(
    pools: list[Samples], workers: int, alpha: float, *, rng: np.random.Generator
) -> list[Samples]:
    left = np.array([len(pool) for pool in pools])
    size = left.sum() // workers
    assigned: list[Samples] = [np.empty(0, np.int64)] * workers
    for worker in rng.permutation(workers):
        counts = _draw(alpha, size, left, rng=rng)
        takes = zip(pools, left, counts, strict=True)
        assigned[worker] = np.concatenate([pool[have - take : have] for pool, have, take in takes])
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


def _too_few(samples: int, workers: int, *, without: int) -> ScenarioError:
    found = f"{without} of {workers} workers without any of the {samples} training samples"
    expected = "at least one each: use fewer workers, a larger fraction or another partition"
    return ScenarioError.at("dataset.partition", found, expected)
