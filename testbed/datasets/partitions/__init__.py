"""Partitions of the training samples among the workers; every draw is from ``rng``.

    iid         a seeded permutation, cut into equal parts; the remainder is dropped
    by_label    every worker has samples of a few labels only
    by_size     equal mixtures of labels, sizes by a power law
    dirichlet   equal sizes, mixtures of labels drawn from a Dirichlet law
    dirichlet_by_size    the same with sizes by a power law
    shards      sorted by label, cut into shards, of which every worker gets a few
    by_user     all samples of a user stay together
    lists       the samples that a JSON file names for each worker
    custom      a function in the user's file
    by_order    equal parts of the data set in its order; the remainder is dropped
    shared      every worker has all samples

Shards overlap only with ``shared``, ``lists`` and ``custom``, and it is an error if a worker would
have no sample. Where no file says otherwise, the labels or size of each worker are drawn too, so
that they do not depend on its number or class. Samples with numbers or tokens to predict cannot be
partitioned by labels. A new partition is a file here and an entry in ``AnyPartition``.
"""

from __future__ import annotations

from typing import Annotated, cast, get_args

import numpy as np
from numpy.typing import NDArray
from typing_extensions import TypeAliasType

from testbed.datasets.partitions.base import Samples
from testbed.datasets.partitions.custom import CustomPartition
from testbed.datasets.partitions.labels import ByLabel, Dirichlet, DirichletBySize, SortedShards
from testbed.datasets.partitions.listed import ByUser, Lists
from testbed.datasets.partitions.sizes import ByOrder, BySize, Iid, Shared
from testbed.errors import ScenarioError
from testbed.values.family import Named

AnyPartition = (
    Iid
    | ByLabel
    | BySize
    | ByUser
    | ByOrder
    | CustomPartition
    | Dirichlet
    | DirichletBySize
    | Lists
    | Shared
    | SortedShards
)
Partition = TypeAliasType("Partition", Annotated[AnyPartition, Named()])


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
    numbers if there are no classes, or tokens, shape (n, length); only a ``balanced_subset`` is
    assigned. The same state of
    ``rng`` gives the same shards on every node. A partition with a file is already ``opened``.

    Raises:
        ScenarioError: a worker would have no sample, or too few labels, or the partition needs
            labels and there are none.
    """
    if labels.ndim > 1:
        classes = 0
    if not classes and partition.NEEDS_LABELS:
        raise _without_labels(partition.name, "tokens" if labels.ndim > 1 else "numbers")
    kinds = cast(Samples, labels) if classes else np.zeros(len(labels), np.int64)
    chosen = balanced_subset(kinds, fraction, classes=max(1, classes), rng=rng)
    if len(chosen) < workers and not partition.OVERLAPS:
        raise _too_few(len(chosen), workers, without=workers - len(chosen))
    assigned = partition.assign(chosen, kinds, workers, rng=rng)
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


def _without_labels(found: str, targets: str) -> ScenarioError:
    others = (kind.model_fields["name"] for kind in get_args(AnyPartition) if not kind.NEEDS_LABELS)
    *most, last = (get_args(name.annotation)[0] for name in others)
    expected = f"{', '.join(most)} or {last}: its samples have {targets}, not labels"
    return ScenarioError.at("dataset.partition", found, expected)


def _too_few(samples: int, workers: int, *, without: int) -> ScenarioError:
    found = f"{without} of {workers} workers without any of the {samples} training samples"
    expected = "at least one each: use fewer workers, a larger fraction or another partition"
    return ScenarioError.at("dataset.partition", found, expected)
