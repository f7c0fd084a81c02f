from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.datasets.partitions import (
    ByLabel,
    BySize,
    Dirichlet,
    Iid,
    Samples,
    Shared,
    balanced_subset,
    shards,
)
from testbed.errors import ScenarioError

IID = Iid(name="iid")
PARTITIONS = [
    IID,
    ByLabel(name="by_label", labels_per_worker=1),
    ByLabel(name="by_label", labels_per_worker=2),
    BySize(name="by_size", exponent=0.5),
    BySize(name="by_size", exponent=2.0),
    Dirichlet(name="dirichlet", alpha=0.001),
    Dirichlet(name="dirichlet", alpha=0.5),
    Dirichlet(name="dirichlet", alpha=1e6),
]


def repeated(counts: list[int]) -> Samples:
    """Labels 0, 1, 2 ... with these counts."""
    return np.repeat(np.arange(len(counts)), counts)


def deal(
    partition: Iid | ByLabel | BySize | Dirichlet,
    counts: list[int],
    workers: int,
    *,
    fraction: float = 1.0,
    seed: int = 0,
) -> list[Samples]:
    labels = np.random.default_rng(99).permutation(repeated(counts))
    rng = np.random.default_rng(seed)
    return shards(partition, labels, workers, fraction=fraction, classes=len(counts), rng=rng)


def test_iid_drops_the_remainder() -> None:
    dealt = deal(IID, [4, 4, 3], 3)
    assert [len(shard) for shard in dealt] == [3, 3, 3]


def test_shared_is_everything_for_everyone() -> None:
    """Also with more workers than samples."""
    dealt = deal(Shared(name="shared"), [2, 1], 5)
    assert [shard.tolist() for shard in dealt] == [[0, 1, 2]] * 5
    (half,) = deal(Shared(name="shared"), [10, 10], 1, fraction=0.5)
    assert len(half) == 10


def test_sixty_thousand_images_for_two_hundred_workers() -> None:
    dealt = deal(IID, [6000] * 10, 200)
    assert {len(shard) for shard in dealt} == {300}
    assert len(np.unique(np.concatenate(dealt))) == 60_000


def test_by_size_worked_by_hand() -> None:
    """Weights 1, 1/2, 1/3 of 11 samples: 11 x 6/11, 11 x 3/11, 11 x 2/11."""
    dealt = deal(BySize(name="by_size", exponent=1.0), [6, 5], 3)
    assert sorted(len(shard) for shard in dealt) == [2, 3, 6]


def test_by_size_with_exponent_zero_is_equal() -> None:
    dealt = deal(BySize(name="by_size", exponent=0.0), [6, 6], 4)
    assert [len(shard) for shard in dealt] == [3, 3, 3, 3]


def test_by_label_with_equal_numbers_of_owners() -> None:
    """Six workers with two of three labels each: every label has four owners, of 3 samples each."""
    labels = repeated([12, 12, 12])
    rng = np.random.default_rng(0)
    two = ByLabel(name="by_label", labels_per_worker=2)
    dealt = shards(two, labels, 6, fraction=1.0, classes=3, rng=rng)
    for shard in dealt:
        assert sorted(np.bincount(labels[shard], minlength=3)) == [0, 3, 3]
    assert len(np.unique(np.concatenate(dealt))) == 36


def test_by_label_with_fewer_owners_than_labels_omits_labels() -> None:
    one = ByLabel(name="by_label", labels_per_worker=1)
    dealt = deal(one, [5, 5, 5], 2)
    assert [len(shard) for shard in dealt] == [5, 5]


def test_by_label_with_more_labels_than_exist() -> None:
    three = ByLabel(name="by_label", labels_per_worker=3)
    with pytest.raises(ScenarioError, match=r"labels_per_worker: found 3, expected at most 2"):
        deal(three, [5, 5, 0], 2)


def test_a_small_alpha_gives_few_labels_and_a_large_one_all() -> None:
    counts = [100] * 10
    labels = np.random.default_rng(99).permutation(repeated(counts))

    def labels_of(alpha: float) -> float:
        dealt = deal(Dirichlet(name="dirichlet", alpha=alpha), counts, 5)
        assert [len(shard) for shard in dealt] == [200] * 5
        return float(np.mean([len(np.unique(labels[shard])) for shard in dealt]))

    assert labels_of(0.01) < 5
    assert labels_of(1000) == 10


@pytest.mark.parametrize(
    ("counts", "fraction", "quotas"),
    [
        ([10, 10, 10], 0.5, [5, 5, 5]),
        ([10, 10, 10], 0.4, [4, 4, 4]),
        ([10, 10, 10], 14 / 30, [5, 5, 4]),
        ([2, 10, 10], 0.5, [2, 5, 4]),
        ([1, 4, 10], 12 / 15, [1, 4, 7]),
        ([0, 3, 3], 1.0, [0, 3, 3]),
    ],
)
def test_a_subset_is_as_balanced_as_the_labels_allow(
    counts: list[int], fraction: float, quotas: list[int]
) -> None:
    labels = repeated(counts)
    chosen = balanced_subset(labels, fraction, classes=3, rng=np.random.default_rng(0))
    assert np.bincount(labels[chosen], minlength=3).tolist() == quotas


def test_the_papers_fifth_of_mnist() -> None:
    counts = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    labels = repeated(counts)
    chosen = balanced_subset(labels, 0.2, classes=10, rng=np.random.default_rng(0))
    assert np.bincount(labels[chosen]).tolist() == [1200] * 10


@pytest.mark.parametrize("partition", PARTITIONS, ids=repr)
def test_a_partition_depends_on_the_generator(
    partition: Iid | ByLabel | BySize | Dirichlet,
) -> None:
    one, two, other = (deal(partition, [40, 40, 40], 4, seed=seed) for seed in (1, 1, 2))
    for a, b in zip(one, two, strict=True):
        np.testing.assert_array_equal(a, b)
    assert any(not np.array_equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("partition", [IID, BySize(name="by_size", exponent=3.0)], ids=repr)
def test_a_worker_without_samples_is_an_error(partition: Iid | BySize) -> None:
    with pytest.raises(ScenarioError, match="without any of the 6 training samples, expected at"):
        deal(partition, [3, 3], 10)
    with pytest.raises(ScenarioError, match="10 workers without any of the 0 training samples"):
        deal(partition, [3, 3], 10, fraction=0.01)


@settings(max_examples=150, deadline=None)
@given(
    partition=st.sampled_from(PARTITIONS),
    counts=st.lists(st.integers(0, 40), min_size=2, max_size=6),
    workers=st.integers(1, 15),
    fraction=st.floats(0.05, 1.0),
    seed=st.integers(0, 2**32),
)
def test_shards_are_disjoint_and_not_empty(
    partition: Iid | ByLabel | BySize | Dirichlet,
    counts: list[int],
    workers: int,
    fraction: float,
    seed: int,
) -> None:
    try:
        dealt = deal(partition, counts, workers, fraction=fraction, seed=seed)
    except ScenarioError:
        return
    used = np.concatenate(dealt)
    assert len(dealt) == workers
    assert min(len(shard) for shard in dealt) > 0
    assert len(np.unique(used)) == len(used) <= round(fraction * sum(counts))
    assert all(shard.dtype == np.int64 and np.all(np.diff(shard) > 0) for shard in dealt)
    assert used.min() >= 0
    assert used.max() < sum(counts)
    if partition.name in ("iid", "dirichlet"):
        assert {len(shard) for shard in dealt} == {round(fraction * sum(counts)) // workers}
