"""LEAF's JSON files, worked by hand, and errors that name file, user and sample."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from testbed.datasets import Leaf, Prepared, load
from testbed.datasets.partitions import ByUser, shards
from testbed.errors import DataError, ScenarioError

ANN, BOB = ([[0, 0.5, 1, 0], [1, 1, 1, 0]], [2, 0]), ([[0, 0, 0, 0.25]], [1])


def content(**users: tuple[list[Any], list[Any]]) -> dict[str, Any]:
    data = {name: {"x": x, "y": y} for name, (x, y) in users.items()}
    counts = [len(y) for _, y in users.values()]
    return {"users": list(users), "num_samples": counts, "user_data": data}


def write(folder: Path, **files: object) -> Path:
    """Write files, such as ``train_0`` into ``train``; and ``all_0`` into the folder itself."""
    for name, what in files.items():
        half, _, number = name.partition("_")
        place = folder if half == "all" else folder / half
        place.mkdir(parents=True, exist_ok=True)
        text = what if isinstance(what, str) else json.dumps(what)
        (place / f"all_data_{number}.json").write_text(text, encoding="utf-8")
    return folder


def read(folder: Path, **options: Any) -> Prepared:
    config = Leaf(name="leaf", folder=".", **options)
    cache = folder.parent / "cache"
    return load(config.prepare(cache, environment={}, folder=folder))


def test_samples_in_order_of_files_and_users(tmp_path: Path) -> None:
    files = {"train_0": content(bob=BOB, ann=ANN), "train_1": content(cem=([[0, 0, 1, 1]], [0]))}
    folder = write(tmp_path / "own", **files, test_0=content(bob=([[1, 0, 0, 0]], [3])))
    data = read(folder, shape=[1, 2, 2])
    assert data.train_images.tolist()[0] == [[[0, 0], [0, 0.25]]]
    assert data.train_images.tolist()[3] == [[[0, 0], [1, 1]]]
    assert data.train_labels.tolist() == [1, 2, 0, 0]
    assert (data.test_labels.tolist(), data.classes) == ([3], 4)
    assert data.train_users is not None
    assert data.train_users.tolist() == [1, 0, 0, 2]  # by name: ann, bob, cem
    assert read(folder).train_images.shape == (4, 1, 1, 4)


def test_the_partition_by_user_has_the_users_of_the_data_set(tmp_path: Path) -> None:
    folder = write(tmp_path / "own", train_0=content(bob=BOB, ann=ANN), test_0=content(bob=BOB))
    data = read(folder)
    partition = ByUser(name="by_user").opened(tmp_path, users=data.train_users)
    rng = np.random.default_rng(0)
    dealt = shards(partition, data.train_labels, 2, fraction=1.0, classes=3, rng=rng)
    assert sorted(shard.tolist() for shard in dealt) == [[0], [1, 2]]
    unknown = ByUser(name="by_user").opened(tmp_path)
    with pytest.raises(ScenarioError, match=r"found no users in the data set, expected `file`"):
        shards(unknown, data.train_labels, 2, fraction=1.0, classes=3, rng=rng)


def test_every_user_gives_a_share_to_test_on(tmp_path: Path) -> None:
    """A quarter of 4 and of 8 samples: 1 and 2; a single sample stays."""
    users = {name: ([[k, 0] for k in range(n)], [0] * n) for name, n in (("a", 4), ("b", 8))}
    folder = write(tmp_path / "own", all_0=content(**users, c=([[9, 9]], [1])))
    data = read(folder, test_share=0.25)
    assert data.train_users is not None
    assert np.bincount(data.train_users).tolist() == [3, 6, 1]
    assert len(data.test_labels) == 3
    assert np.array_equal(read(folder, test_share=0.25).test_images, data.test_images)
    with pytest.raises(ScenarioError, match=r"no test files in .*own, expected .* `test_share`"):
        read(folder)


def test_standardised_on_demand_and_numbers_to_predict(tmp_path: Path) -> None:
    """0, 0, 1, 1 has the mean 1/2 and the deviation 1/2."""
    folder = write(tmp_path / "own", train_0=content(a=([[0, 0, 1, 1]], [0.5])))
    write(folder, test_0=content(a=([[0, 2, 0, 2]], [2])))
    data = read(folder, standardise=True)
    assert data.train_images.ravel().tolist() == [-1, -1, 1, 1]
    assert data.test_images.ravel().tolist() == [-1, 1, -1, 1]
    assert (data.classes, data.train_labels.tolist(), data.test_labels.tolist()) == (0, [0.5], [2])


@pytest.mark.parametrize(
    ("broken", "flaw"),
    [
        ("{\n[", r"all_data_0\.json:2: found .*, expected JSON"),
        ([1], r"all_data_0\.json: found no object with keys, expected LEAF's layout"),
        ({"rows": 1}, r"found the keys rows, expected LEAF's layout"),
        ({**content(a=ANN), "num_samples": []}, "found 1 users and 0 num_samples"),
        ({**content(a=ANN), "num_samples": [3]}, "user 'a': x: found 2 in x, 2 in y and num_samp"),
        ({**content(a=ANN), "user_data": {}}, "user 'a': user_data: found no lists x and y"),
        (content(a=(["hello"], [1])), r"user 'a': x\[0\]: found text, 'hello', expected numbers"),
        (content(a=([[1, 2], [1]], [1, 1])), r"x\[1\]: found \(1,\) numbers, expected \(2,\)"),
        (content(a=([[1, 2], [1, "u"]], [1, 1])), r"x\[1\]: found other values"),
        (content(a=([[1, 1e39]], [1])), r"x\[0\]: found NaN or infinity"),
        (content(a=([7], [1])), r"x\[0\]: found 7, expected a list of numbers"),
        (content(a=([[1, 2]], [-1])), r"user 'a': y\[0\]: found -1, expected 0 to 999,999"),
        (content(a=([[1, 2]], [None])), r"y\[0\]: found null, expected labels"),
        (content(a=([[1, 2]], [1]), b=([[1]], [1])), r"user 'b': x: found \(1,\) numbers a sam"),
    ],
)
def test_damaged_files_are_named(tmp_path: Path, broken: object, flaw: str) -> None:
    folder = write(tmp_path / "own", train_0=broken, test_0=content(a=ANN))
    with pytest.raises(DataError, match=flaw):
        read(folder)


def test_pictures_that_samples_name(tmp_path: Path) -> None:
    """Two grey pixels each; the cache has another entry once a picture has changed."""
    folder = write(
        tmp_path / "own",
        train_0=content(ann=(["1.png", "2.png"], [0, 1])),
        test_0=content(bob=(["1.png"], [0])),
    )
    pictures = folder / "raw/faces"
    pictures.mkdir(parents=True)
    for name, pixels in {"1.png": [0, 255], "2.png": [102, 51]}.items():
        Image.fromarray(np.array([pixels], np.uint8)).save(pictures / name)
    data = read(folder, pictures="raw/faces", standardise=False)
    expected = np.array([[0, 1], [0.4, 0.2]], np.float32)
    np.testing.assert_allclose(data.train_images.reshape(2, 2), expected)
    assert data.test_images.shape == (1, 1, 1, 2)
    assert data.train_users is not None
    scaled = read(folder, pictures="raw/faces", image_size=[2, 2], colour=True)
    assert scaled.train_images.shape == (2, 3, 2, 2)
    Image.fromarray(np.array([[51, 51]], np.uint8)).save(pictures / "2.png")
    again = read(folder, pictures="raw/faces", standardise=False)
    np.testing.assert_allclose(again.train_images[1].reshape(2), [0.2, 0.2])


@pytest.mark.parametrize(
    ("sample", "flaw"),
    [
        ("no.png", r"user 'a': x\[0\]: found 'no\.png', expected the name of a file in .*/raw"),
        ("../all_data_0.json", r"found '\.\./all_data_0\.json', expected the name of a file"),
        ("text.png", r"x\[0\]: found cannot identify image file, expected a picture"),
        ([1, 2], r"x\[0\]: found other values, expected the name of a picture"),
    ],
)
def test_pictures_that_do_not_exist(tmp_path: Path, sample: object, flaw: str) -> None:
    folder = write(tmp_path / "own", train_0=content(a=([sample], [0])), test_0=content(a=ANN))
    (folder / "raw").mkdir()
    (folder / "raw/text.png").write_text("text")
    with pytest.raises(DataError, match=flaw):
        read(folder, pictures="raw")


def test_folders_that_do_not_fit(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match=r"dataset\.folder: found \., which is no folder"):
        read(tmp_path / "nowhere")
    (tmp_path / "own").mkdir()
    with pytest.raises(DataError, match=r"own: found no JSON files"):
        read(tmp_path / "own")
    folder = write(tmp_path / "own", train_0=content(a=ANN), test_0=content(a=ANN))
    with pytest.raises(ScenarioError, match=r"dataset\.shape: found samples of \(4,\) numbers"):
        read(folder, shape=[1, 3, 3])
    write(folder, test_0=content(a=([[1, 2]], [0])))
    with pytest.raises(DataError, match=r"training and test images are of \(1, 1, 4\) and of"):
        read(folder)
