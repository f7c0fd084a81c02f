"""Rows of Arrow and Parquet files: which columns are found, their values, and errors."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from testbed.datasets import HuggingFace, Parquet, Prepared, load
from testbed.errors import DataError, ScenarioError

GREY = np.array([[0, 0, 100], [100, 100, 0]], np.uint8)


def picture(pixels: np.ndarray, kind: str = "PNG") -> dict[str, Any]:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, kind)
    return {"bytes": file.getvalue(), "path": None}


def features(**of: dict[str, Any]) -> dict[str, str]:
    return {"huggingface": json.dumps({"info": {"features": of}})}


CLASSES = features(animal={"_type": "ClassLabel", "names": ["cat", "dog", "eel"]})


def parquet(folder: Path, test: dict[str, Any] | None = None, **train: Any) -> Path:
    folder.mkdir(exist_ok=True)
    for name, columns in (("train", train), ("test", test or train)):
        pq.write_table(
            pa.table(columns).replace_schema_metadata(CLASSES), folder / f"{name}.parquet"
        )
    return folder


def read(folder: Path, **options: Any) -> Prepared:
    config = Parquet(name="parquet", folder=".", **options)
    cache = folder.parent / "cache"
    return load(config.prepare(cache, environment={}, folder=folder))


def test_pictures_and_class_labels_are_found(tmp_path: Path) -> None:
    """Half of the pixels are 0 and half 100: standardised, -1 and 1. A dog and a cat, of three."""
    images = [picture(GREY), picture(100 - GREY)]
    data = read(parquet(tmp_path / "own", animal=[1, 0], photo=images, note=["x", "y"]))
    assert data.train_images[0].tolist() == [[[-1, -1, 1], [1, 1, -1]]]
    assert data.test_images[1].tolist() == [[[1, 1, -1], [-1, -1, 1]]]
    assert (data.train_labels.tolist(), data.classes) == ([1, 0], 3)


def test_pictures_in_colour_scaled_and_without_standardising(tmp_path: Path) -> None:
    pixels = np.zeros((2, 3, 3), np.uint8) + np.array([51, 102, 255], np.uint8)
    folder = parquet(tmp_path / "own", animal=[1], photo=[picture(pixels)["bytes"]])
    data = read(folder, standardise=False, image_size=[1, 2])
    np.testing.assert_allclose(data.train_images[0, :, 0, 0], [0.2, 0.4, 1], rtol=1e-6)
    assert data.image_shape == (3, 1, 2)
    assert read(folder, colour=False).image_shape == (1, 2, 3)


def test_a_table_of_numbers_and_words_as_labels(tmp_path: Path) -> None:
    folder = parquet(
        tmp_path / "own",
        test={"a": [5], "b": [0.5], "target": ["up"]},
        **{"a": [1, 2], "b": [0.25, 4.0], "target": ["on", "off"], "__index_level_0__": [7, 8]},
    )
    data = read(folder)
    assert data.train_images.tolist() == [[[[1, 0.25]]], [[[2, 4]]]]
    assert (data.train_labels.tolist(), data.test_labels.tolist()) == ([1, 0], [2])
    assert data.classes == 3  # off, on, up
    assert read(folder, inputs="b").train_images.ravel().tolist() == [0.25, 4]
    assert read(folder, label="b", inputs="a").classes == 0


def test_lists_of_numbers(tmp_path: Path) -> None:
    kind = pa.list_(pa.list_(pa.uint8()))
    bytes_ = parquet(tmp_path / "bytes", x=pa.array([GREY.tolist()] * 2, kind), y=[0, 1])
    assert read(bytes_).train_images[0].tolist() == [[[-1, -1, 1], [1, 1, -1]]]
    last = np.arange(2 * 5 * 4 * 3).reshape(2, 5, 4, 3)
    data = read(parquet(tmp_path / "last", x=last.tolist(), y=[0, 1]))
    assert np.array_equal(data.train_images, last.transpose(0, 3, 1, 2))
    fixed = pa.array([[1, 2, 3, 4]] * 2, pa.list_(pa.int16(), 4))
    data = read(parquet(tmp_path / "fixed", x=fixed, y=[0, 1]), shape=[1, 2, 2])
    assert data.train_images[0].tolist() == [[[1, 2], [3, 4]]]
    windows = parquet(tmp_path / "windows", x=[[1, 2, 3]], y=[[4, 5, 6]], target=[0])
    assert read(windows, inputs=["x", "y"]).train_images.tolist() == [[[[1, 2, 3], [4, 5, 6]]]]


def test_users_of_a_column_and_files_of_a_split(tmp_path: Path) -> None:
    folder = tmp_path / "own"
    for name, users in (
        ("data/train-0-of-2", [9, 8]),
        ("data/train-1-of-2", [9]),
        ("trainer", [1]),
    ):
        (folder / "data").mkdir(parents=True, exist_ok=True)
        table = pa.table({"x": users, "y": [0] * len(users), "who": users})
        pq.write_table(table, folder / f"{name}.parquet")
    data = read(folder, user="who", test_share=0.3)
    assert data.train_users is not None
    assert sorted([*data.train_images.ravel(), *data.test_images.ravel()]) == [8, 9, 9]
    of = dict(zip(data.train_users.tolist(), data.train_images.ravel().tolist(), strict=True))
    assert set(of.items()) <= {(0, 8), (1, 9), (0, 9)}


@pytest.mark.parametrize(
    ("columns", "flaw"),
    [
        (
            {"x": [{"bytes": b"GIF8", "path": "a"}]},
            r"train\.parquet: row 0, column x: found cannot",
        ),
        ({"x": [picture(GREY), picture(GREY[:1])]}, "row 1, column x: found a picture of 1x3"),
        ({"x": [picture(GREY), {"bytes": None, "path": "a"}]}, "row 1, column x: found no bytes"),
        ({"x": [picture(GREY), None]}, "row 1, column x: found no bytes"),
        ({"x": [picture(GREY), picture(np.dstack([GREY] * 3))]}, "row 1, .* a picture in colour"),
        ({"x": [picture(GREY.astype(np.uint16), "TIFF")]}, "row 0, column x: found mode I;16"),
        ({"x": [[1, 2], [1, 2, 3]]}, "row 1, column x: found a list of 3, expected 2 items"),
        ({"x": [[[1, 2], [1, 2]], [[1, 2], [1]]]}, "row 1, column x: found a list of 1"),
        ({"x": [[1, 2], None]}, "row 1, column x: found null, expected a list"),
        ({"x": [[1, 2], [1, None]]}, "row 1, column x: found null, expected a number"),
        ({"x": [[1.0], [1e39]]}, "row 1, column x: found inf"),
        ({"x": [1, 2**30]}, "row 1, column x: found 1073741824, expected integers of at most"),
        ({"x": [1, 2], "y": [0, -1]}, "row 1, column y: found -1, expected a label from 0 to 999"),
        ({"x": [1, 2], "y": [0, None]}, "row 1, column y: found null, expected a label"),
        ({"x": [1, 2], "y": [0, 1], "who": ["a", None]}, "row 1, column who: found null"),
        ({"x": [1], "y": [0], "who": [1.5]}, "row 0, column who: found double, expected text"),
        ({"x": ["a"]}, "row 0, column x: found string, expected numbers"),
    ],
)
def test_errors_name_file_row_and_column(tmp_path: Path, columns: Any, flaw: str) -> None:
    columns = {"y": [0] * len(columns["x"]), **columns}
    folder = parquet(tmp_path / "own", **columns)
    with pytest.raises(DataError, match=flaw):
        read(folder, inputs="x", user="who" if "who" in columns else None)


@pytest.mark.parametrize(
    ("columns", "options", "flaw"),
    [
        ({"x": [1], "y": [0]}, {"label": "z"}, r"dataset\.label: found `z`, expected .*: x, y"),
        ({"x": [1], "z": [0]}, {}, r"dataset\.label: found no `label`, .* x \(int64\), z"),
        ({"a": [[1]], "b": [[1]], "y": [0]}, {}, r"dataset\.inputs: found no `inputs`"),
        ({"a": ["t"], "y": [0]}, {}, r"dataset\.inputs: found no `inputs`.* a \(string\)"),
        ({"a": [[1]], "b": [[1, 2]], "y": [0]}, {"inputs": ["a", "b"]}, r"dataset\.inputs: found"),
        ({"x": [1], "y": [0]}, {"test_split": "dev"}, r"dataset: found no test files"),
    ],
)
def test_columns_that_are_not_there(
    tmp_path: Path, columns: Any, options: dict[str, Any], flaw: str
) -> None:
    with pytest.raises(ScenarioError, match=flaw):
        read(parquet(tmp_path / "own", **columns), **options)


def test_files_that_do_not_fit(tmp_path: Path) -> None:
    folder = parquet(tmp_path / "own", x=[1], y=[0])
    with pytest.raises(
        DataError, match=r"found Parquet files: test\.parquet, train\.parquet; expected"
    ):
        read(folder, train_split="dev")
    with pytest.raises(DataError, match="found too few samples"):
        read(folder, test_share=0.5)
    (folder / "train.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(DataError, match=r"train\.parquet cannot be read"):
        read(folder)
    pq.write_table(pa.table({"x": pa.array([], pa.int64()), "y": []}), folder / "train.parquet")
    with pytest.raises(DataError, match=r"train\.parquet: found no rows"):
        read(folder)


def saved(folder: Path, **columns: Any) -> None:
    folder.mkdir(parents=True)
    table = pa.table(columns).replace_schema_metadata(CLASSES)
    for number, rows in enumerate((table.slice(0, 2), table.slice(2))):
        with pa.ipc.new_stream(str(folder / f"data-{number}.arrow"), table.schema) as stream:
            stream.write_table(rows)
    listed = [{"filename": f"data-{number}.arrow"} for number in (1, 0)]
    (folder / "state.json").write_text(json.dumps({"_data_files": listed}))


def of_hugging_face(folder: Path, **options: Any) -> Prepared:
    config = HuggingFace(name="huggingface", folder=".", **options)
    return load(config.prepare(folder.parent / "cache", environment={}, folder=folder))


def test_folders_saved_to_disk(tmp_path: Path) -> None:
    """Files in the order of the state, not of their names; errors count rows within a file."""
    folder = tmp_path / "own"
    saved(folder / "train", x=[10, 20, 30], animal=[0, 1, 2])
    saved(folder / "test", x=[40, 50, 60], animal=[2, 1, 0])
    (folder / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    data = of_hugging_face(folder)
    assert data.train_images.ravel().tolist() == [30, 10, 20]
    assert (data.train_labels.tolist(), data.test_labels.tolist()) == ([2, 0, 1], [0, 2, 1])
    assert data.classes == 3
    alone = of_hugging_face(folder / "train", test_share=0.4)
    assert (len(alone.train_labels), len(alone.test_labels)) == (2, 1)
    with pytest.raises(ScenarioError, match=r"test_split: found `dev`, expected .* train, test"):
        of_hugging_face(folder, test_split="dev")
    saved(folder / "bad", x=[1, 2, 3], animal=[0, 0, 3])
    with pytest.raises(DataError, match=r"data-1\.arrow: row 0, column animal: found 3, .* to 2"):
        of_hugging_face(folder / "bad", test_share=0.5)


@pytest.mark.parametrize(
    ("state", "flaw"),
    [
        (None, r"state\.json does not exist.*save_to_disk"),
        ("{", r"state\.json cannot be read"),
        ("{}", r"state\.json: found no list _data_files"),
        ('{"_data_files": [7]}', r"found no file names"),
        ('{"_data_files": [{"filename": "gone.arrow"}]}', r"gone\.arrow cannot be read: No such"),
        ('{"_data_files": [{"filename": "state.json"}]}', r"state\.json cannot be read: "),
    ],
)
def test_damaged_folders(tmp_path: Path, state: str | None, flaw: str) -> None:
    (tmp_path / "own").mkdir()
    if state is not None:
        (tmp_path / "own" / "state.json").write_text(state)
    with pytest.raises(DataError, match=flaw):
        of_hugging_face(tmp_path / "own", test_share=0.5)
