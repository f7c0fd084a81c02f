from __future__ import annotations

import json
import threading
from pathlib import Path

import numpy as np
import pytest

from testbed.datasets.prepared import Prepared, load, prepare_once
from testbed.errors import DataError


def small(value: int = 0) -> Prepared:
    return Prepared(
        train_images=np.full((3, 1, 2, 2), value, np.float32),
        train_labels=np.array([0, 1, 1]),
        test_images=np.zeros((2, 1, 2, 2), np.float32),
        test_labels=np.array([1, 0]),
        classes=2,
        source={"name": "small"},
    )


def test_a_written_data_set_is_read(tmp_path: Path) -> None:
    folder = prepare_once(tmp_path / "a" / "small-1", lambda: small(7))
    data = load(folder)
    np.testing.assert_array_equal(data.train_images, small(7).train_images)
    np.testing.assert_array_equal(data.test_labels, [1, 0])
    assert (data.classes, data.image_shape, data.source) == (2, (1, 2, 2), {"name": "small"})


def test_a_data_set_is_prepared_once(tmp_path: Path) -> None:
    prepare_once(tmp_path / "x", small)
    prepare_once(tmp_path / "x", lambda: pytest.fail("made twice"))


def test_one_of_several_concurrent_processes_prepares_it(tmp_path: Path) -> None:
    made: list[int] = []
    begun = threading.Barrier(4)

    def make() -> Prepared:
        made.append(1)
        return small()

    def prepare() -> None:
        begun.wait()
        prepare_once(tmp_path / "x", make)

    threads = [threading.Thread(target=prepare) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert made == [1]
    assert load(tmp_path / "x").classes == 2


def test_a_failure_leaves_nothing_and_can_be_repeated(tmp_path: Path) -> None:
    def fail() -> Prepared:
        raise DataError("no such file")

    with pytest.raises(DataError, match="no such file"):
        prepare_once(tmp_path / "x", fail)
    assert [path.name for path in tmp_path.iterdir()] == [".x.lock"]
    prepare_once(tmp_path / "x", small)


def test_files_left_by_a_killed_process_are_removed(tmp_path: Path) -> None:
    left_over = tmp_path / ".x.abc.tmp"
    left_over.mkdir()
    (left_over / "train_images.npy").write_bytes(b"half")
    prepare_once(tmp_path / "x", small)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".x.lock", "x"]


def test_a_cache_that_is_a_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("", encoding="utf-8")
    with pytest.raises(DataError, match=r"cache/x cannot be created: .*Set XDG_CACHE_HOME"):
        prepare_once(tmp_path / "cache" / "x", small)


@pytest.mark.parametrize(
    ("file", "content", "expected"),
    [
        ("meta.json", None, "meta.json: .*No such file"),
        ("meta.json", b"{", "meta.json: Expecting"),
        ("meta.json", b"[]", "meta.json: found format None, expected 1"),
        ("meta.json", b'{"format": 2}', "meta.json: found format 2, expected 1"),
        (
            "meta.json",
            b'{"format": 1, "classes": 2}',
            "meta.json: it lacks image_shape, sha256, source",
        ),
        ("train_images.npy", None, "train_images.npy: .*No such file"),
        ("train_images.npy", b"", "train_images.npy: "),
        ("test_labels.npy", b"\x93NUMPY\x01", "test_labels.npy: "),
    ],
)
def test_damage_is_named(tmp_path: Path, file: str, content: bytes | None, expected: str) -> None:
    folder = prepare_once(tmp_path / "x", small)
    (folder / file).unlink()
    if content is not None:
        (folder / file).write_bytes(content)
    with pytest.raises(DataError, match=f"damaged: .*{expected}") as caught:
        load(folder)
    assert f"rm -r {folder}" in caught.value.hint
    with pytest.raises(DataError):
        prepare_once(tmp_path / "x", small)


@pytest.mark.parametrize(
    ("part", "array"),
    [
        ("train_images", np.zeros((3, 1, 2, 2))),
        ("train_images", np.zeros((3, 1, 2, 3), np.float32)),
        ("train_labels", np.zeros(4, np.int64)),
        ("train_labels", np.zeros(3, np.int32)),
        ("test_labels", np.zeros((2, 1), np.int64)),
    ],
)
def test_mismatched_arrays_are_named(tmp_path: Path, part: str, array: np.ndarray) -> None:
    folder = prepare_once(tmp_path / "x", small)
    np.save(folder / f"{part}.npy", array)
    with pytest.raises(DataError, match=r"\.npy: found .*, expected "):
        load(folder)


def test_a_truncated_array_is_named(tmp_path: Path) -> None:
    folder = prepare_once(tmp_path / "x", small)
    file = folder / "train_images.npy"
    file.write_bytes(file.read_bytes()[:-4])
    with pytest.raises(DataError, match=r"train_images\.npy: "):
        load(folder)


def test_the_source_is_recorded(tmp_path: Path) -> None:
    folder = prepare_once(tmp_path / "x", small)
    assert json.loads((folder / "meta.json").read_text(encoding="utf-8"))["source"] == {
        "name": "small"
    }
