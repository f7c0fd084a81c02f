"""Partitions by shards and users, and those that a file determines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from testbed.datasets.partitions import (
    AnyPartition,
    ByLabel,
    ByUser,
    CustomPartition,
    DirichletBySize,
    Iid,
    Lists,
    SortedShards,
    shards,
)
from testbed.errors import ScenarioError, UserFileError

LABELS = np.array([0, 1, 0, 1, 2, 2])


def deal(partition: AnyPartition, workers: int, *, fraction: float = 1.0) -> list[list[int]]:
    rng = np.random.default_rng(0)
    dealt = shards(partition, LABELS, workers, fraction=fraction, classes=3, rng=rng)
    return [shard.tolist() for shard in dealt]


def test_shards_of_one_label_each() -> None:
    """Six sorted samples in three shards: each is one label's two samples."""
    dealt = deal(SortedShards(name="shards", per_worker=1), 3)
    assert sorted(dealt) == [[0, 2], [1, 3], [4, 5]]
    with pytest.raises(ScenarioError, match=r"per_worker: found 3, expected at most 2"):
        deal(SortedShards(name="shards", per_worker=3), 3)


def test_dirichlet_by_size_worked_by_hand() -> None:
    """Weights 1, 1/2, 1/3 of 11 samples: 6, 3 and 2; with a tiny alpha, one label until it ends."""
    labels = np.repeat([0, 1], [6, 5])
    skewed = DirichletBySize(name="dirichlet_by_size", alpha=0.001, exponent=1.0)
    rng = np.random.default_rng(0)
    dealt = shards(skewed, labels, 3, fraction=1.0, classes=2, rng=rng)
    assert sorted(map(len, dealt)) == [2, 3, 6]
    assert min(len(np.unique(labels[shard])) for shard in dealt) == 1


def written(folder: Path, content: Any) -> Path:
    (folder / "split.json").write_text(json.dumps(content), encoding="utf-8")
    return folder


@pytest.mark.parametrize("content", [[[5, 0], [1, 5]], {"b": [5, 0], "a": [1, 5]}])
def test_lists_of_samples(tmp_path: Path, content: Any) -> None:
    lists = Lists(name="lists", file="split.json").opened(written(tmp_path, content))
    assert deal(lists, 2) == [[0, 5], [1, 5]]


@pytest.mark.parametrize(
    ("content", "found"),
    [
        ([[0], [1], [2]], "found 3 lists, expected a list of samples for each of the 2 workers"),
        ([[0], [6]], "found 6 in the list of w1, expected numbers of samples from 0 to 5"),
        ([[0], []], "found an empty list for w1"),
        ([[0, 0], [1]], "found a sample twice in the list of w0"),
        ("0", "found no lists"),
    ],
)
def test_lists_that_do_not_fit(tmp_path: Path, content: Any, found: str) -> None:
    lists = Lists(name="lists", file="split.json").opened(written(tmp_path, content))
    with pytest.raises(ScenarioError, match=rf"split\.json.*{found}"):
        deal(lists, 2)


def test_a_file_that_is_not_json(tmp_path: Path) -> None:
    (tmp_path / "split.json").write_text("[\n[0 1]]", encoding="utf-8")
    with pytest.raises(
        ScenarioError, match=r"split\.json:2: dataset\.partition: found .*delimiter"
    ):
        Lists(name="lists", file="split.json").opened(tmp_path)


def test_users_stay_together(tmp_path: Path) -> None:
    users = ["ann", "bob", "ann", "cem", "bob", "cem"]
    by_user = ByUser(name="by_user", file="split.json").opened(written(tmp_path, users))
    assert sorted(deal(by_user, 3)) == [[0, 2], [1, 4], [3, 5]]
    assert sorted(map(len, deal(by_user, 2))) == [2, 4]
    with pytest.raises(ScenarioError, match="found 3 users of the samples in use, expected at lea"):
        deal(by_user, 4)


def own(folder: Path, body: str) -> CustomPartition:
    text = f"import numpy as np\n\n\ndef mine(labels, workers, rng, *, step=1):\n    {body}\n"
    (folder / "mine.py").write_text(text, encoding="utf-8")
    scenario = {"name": "custom", "file": "mine.py", "class": "mine", "step": 2}
    return CustomPartition.model_validate(scenario).opened(folder)


def test_a_partition_of_ones_own(tmp_path: Path) -> None:
    mine = own(tmp_path, "return [np.arange(w, len(labels), step) for w in range(workers)]")
    assert deal(mine, 2) == [[0, 2, 4], [1, 3, 5]]


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("return [[0]]", "returned 1 lists"),
        ("return [[0], [6]]", "returned sample 6 for w1"),
        ("return [[0], [0.5]]", "returned float64 .1,. for w1"),
        ("return [[0], [1, 1]]", "returned a sample twice for w1"),
        ("n = vars(mine); n['at'] = n.get('at', 0) + 1; return [[0], [n['at']]]", "other samples"),
    ],
)
def test_own_partitions_that_do_not_fit(tmp_path: Path, body: str, found: str) -> None:
    with pytest.raises(ScenarioError, match=rf"mine\.py:4: dataset\.partition: found .*{found}"):
        deal(own(tmp_path, body), 2)


def test_an_own_partition_that_fails(tmp_path: Path) -> None:
    with pytest.raises(UserFileError, match=r"mine\.py:5: .* raised ZeroDivisionError"):
        deal(own(tmp_path, "return 1 / 0"), 2)


def test_users_of_the_data_set(tmp_path: Path) -> None:
    by_user = ByUser(name="by_user").opened(tmp_path, users=np.array([1, 0, 0, 2, 2, 1]))
    assert sorted(deal(by_user, 3)) == [[0, 5], [1, 2], [3, 4]]
    with pytest.raises(ScenarioError, match="found 3 users of the samples in use, expected at lea"):
        deal(by_user, 4)
    with pytest.raises(ScenarioError, match="found no users in the data set, expected `file`"):
        deal(ByUser(name="by_user").opened(tmp_path), 3)


def test_tokens_have_no_labels_to_share_by() -> None:
    labels = np.zeros((6, 4), np.int64)
    rng = np.random.default_rng(0)
    shared = shards(Iid(name="iid"), labels, 2, fraction=1.0, classes=3, rng=rng)
    assert sorted(np.concatenate(shared).tolist()) == [0, 1, 2, 3, 4, 5]
    partition = ByLabel(name="by_label", labels_per_worker=1)
    with pytest.raises(ScenarioError, match=r"found by_label, .*its samples have tokens, not labe"):
        shards(partition, labels, 2, fraction=1.0, classes=3, rng=rng)
