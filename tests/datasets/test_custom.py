from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from testbed.datasets import CustomDataset, Prepared, load
from testbed.errors import ScenarioError, UserCodeError

SOURCE = """
import numpy as np
x, y = np.arange(24).reshape(6, 2, 2), [0, 1, 2, 0, 1, 2]

def function():
    return x, y, x[:1], y[:1]

class Holder:
    train_images, train_labels, test_images, test_labels = x, y, x[:1], y[:1]
"""


def prepare(folder: Path, source: str, *, name: str = "function") -> Path:
    (folder / "data.py").write_text(source, encoding="utf-8")
    config = CustomDataset.model_validate({"name": "custom", "file": "./data.py", "class": name})
    return config.prepare(folder / "cache", environment={}, folder=folder)


def read(folder: Path, source: str, *, name: str = "function") -> Prepared:
    return load(prepare(folder, source, name=name))


@pytest.mark.parametrize("name", ["function", "Holder"])
def test_a_function_or_a_class(tmp_path: Path, name: str) -> None:
    data = read(tmp_path, SOURCE, name=name)
    assert data.image_shape == (1, 2, 2)
    assert data.classes == 3
    np.testing.assert_array_equal(data.train_images[1, 0], [[4, 5], [6, 7]])
    np.testing.assert_array_equal(data.test_labels, [0])


def test_options_reach_the_function(tmp_path: Path) -> None:
    source = SOURCE.replace("function():", "function(*, rows):")
    source = source.replace("    return x, y", "    return x[:rows], y[:rows]")
    (tmp_path / "data.py").write_text(source, encoding="utf-8")
    own = {"name": "custom", "file": "data.py", "class": "function", "rows": 4, "fraction": 0.5}
    config = CustomDataset.model_validate(own)
    folder = config.prepare(tmp_path / "cache", environment={}, folder=tmp_path)
    assert load(folder).train_labels.tolist() == [0, 1, 2, 0]


def test_an_option_unknown_to_the_function(tmp_path: Path) -> None:
    (tmp_path / "data.py").write_text(SOURCE, encoding="utf-8")
    own = {"name": "custom", "file": "data.py", "class": "function", "rows": 4}
    config = CustomDataset.model_validate(own)
    with pytest.raises(ScenarioError, match=r"function\(rows=4\) raised TypeError: .*rows"):
        config.prepare(tmp_path / "cache", environment={}, folder=tmp_path)


@pytest.mark.parametrize("images", ["(x * 0 + 2**24)", "-(x * 0 + 2**24)", "x + 2.0**24"])
def test_integers_that_float32_holds_and_floats_that_it_rounds(tmp_path: Path, images: str) -> None:
    data = read(tmp_path, SOURCE.replace("return x, y, x[:1]", f"return {images}, y, x[:1]"))
    assert np.abs(data.train_images[0, 0, 0, 0]) == 2**24


def test_images_with_channels_and_tensors(tmp_path: Path) -> None:
    source = """
import torch

def function():
    x, y = torch.ones(4, 3, 5, 6), torch.tensor([0, 1, 0, 1])
    return x, y, x, y
"""
    data = read(tmp_path, source)
    assert data.image_shape == (3, 5, 6)


def test_the_content_identifies_a_data_set(tmp_path: Path) -> None:
    first = prepare(tmp_path, SOURCE)
    assert prepare(tmp_path, SOURCE + "\n# a comment\n") == first
    assert prepare(tmp_path, SOURCE.replace("arange(24)", "ones(24)")) != first


@pytest.mark.parametrize(
    ("returned", "expected"),
    [
        ("x, y, x", r"found 3 values from function\(\), expected \(train_images, train_labels"),
        (
            "None",
            r"no train_images, train_labels, test_images, test_labels in the result",
        ),
        ("1 / 0", r"data.py:6: dataset: found function\(\) raised ZeroDivisionError"),
        ("x[0], y, x, y", r"train_images of shape \(2, 2\) and type int64, expected numbers of"),
        (
            "x[:, 0], y, x, y",
            r"rows of a table as x\[:, None, None, :\], which a model receives as",
        ),
        ("x, y, x[:0], []", r"test_images of shape \(0, 1, 2, 2\)"),
        ("x.astype('U'), y, x, y", "train_images of shape .* and type <U"),
        ("x * 1j, y, x, y", "type complex128"),
        ("x, y[:5], x, y", r"train_labels of shape \(5,\) and type int64, expected integers or"),
        ("x, [0.5] * 6, x, y", "test_labels of type int64, expected float32, as train_labels"),
        ("x, [0.5] * 6, x, [np.nan] * 6", "NaN or infinity in test_labels"),
        (
            "x, [-1] * 6, x, y",
            "label -1 in train_labels, expected labels from 0 to .* missing value",
        ),
        (
            "x, [10**6] * 6, x, y",
            "label 1000000 in train_labels, expected labels from 0 to 999,999$",
        ),
        ("x, y, x, [3] * 6", "label 3 in test_labels, expected at most 2"),
        ("x, y, x[:, :1], y", r"test_images of shape \(1, 1, 2\) each, expected \(1, 2, 2\)"),
        ("x * np.nan, y, x, y", r"NaN or infinity in train_images\[0\]"),
        ("x, y, x * 1e40, y", r"NaN or infinity in test_images\[0\]"),
        (
            "x, y, x + 2**24, y",  # the highest is 23
            r"the integer 16,777,239 in test_images, expected integers of at most 16,777,216",
        ),
        (
            "x + np.iinfo('i8').min, y, x, y",
            "the integer -9,223,372,036,854,775,808 in train_images",
        ),
        (
            "x.astype('u8') + np.uint64(2**63), y, x, y",
            "the integer 9,223,372,036,854,775,808 in train_images",
        ),
        ("[[1], [1, 2]], y, x, y", "train_images raised ValueError.*expected an array"),
    ],
)
def test_errors_are_reported(tmp_path: Path, returned: str, expected: str) -> None:
    with pytest.raises(ScenarioError, match=expected):
        prepare(tmp_path, SOURCE.replace("return x, y, x[:1], y[:1]", f"return {returned}"))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("missing", "no 'missing' in it; it defines function, Holder, expected missing to be a"),
        ("x", "found x, a ndarray, expected a class or function that returns"),
    ],
)
def test_a_name_that_is_not_a_function_is_reported(
    tmp_path: Path, name: str, expected: str
) -> None:
    with pytest.raises(ScenarioError, match=expected):
        prepare(tmp_path, SOURCE, name=name)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    config = CustomDataset.model_validate({"name": "custom", "file": "no.py", "class": "Load"})
    with pytest.raises(ScenarioError, match=r"no\.py: dataset: found No such file"):
        config.prepare(tmp_path, environment={}, folder=tmp_path)


NUMBERS = """
import numpy as np
x, y = np.arange(24, dtype="uint8").reshape(6, 2, 2), np.linspace(0, 1, 6)

def function():
    return x, y, x[:2], y[:2]

def noisy(images, rng):
    ready = images.astype("float32") / 255
    return ready if rng is None else ready + rng.random(ready.shape, "float32")

def astray(images, rng):
    return images

def restless(images, rng):
    return np.random.random(images.shape).astype("float32")

def broken(images, rng):
    return images / rng.random()

nothing = 3
"""


def own(name: str) -> CustomDataset:
    named = {"name": "custom", "file": "./data.py", "class": "function", "transform": name}
    return CustomDataset.model_validate(named)


def test_numbers_instead_of_labels(tmp_path: Path) -> None:
    data = read(tmp_path, NUMBERS)
    assert data.classes == 0
    assert data.train_labels.dtype == np.float32
    assert data.train_images.dtype == np.float32
    np.testing.assert_allclose(data.train_labels, [0, 0.2, 0.4, 0.6, 0.8, 1])


def test_raw_images_and_a_transform(tmp_path: Path) -> None:
    """A batch is reproducible by its number; nothing is drawn for test images."""
    (tmp_path / "custom").mkdir()
    for place in (tmp_path, tmp_path / "custom"):
        (place / "data.py").write_text(NUMBERS, encoding="utf-8")
    folder = own("noisy").prepare(tmp_path / "cache", environment={}, folder=tmp_path)
    data = replace(load(folder), transform=own("noisy").make_ready(tmp_path))
    assert data.train_images.dtype == np.uint8
    two = np.array([1, 2])
    one, same, other = (data.batch(two, draw)[0] for draw in (5, 5, 6))
    np.testing.assert_array_equal(one, same)
    assert not np.array_equal(one, other)
    drawn = np.random.default_rng(5).random((2, 1, 2, 2), np.float32)
    np.testing.assert_array_equal(one, data.train_images[two].astype(np.float32) / 255 + drawn)
    assert data.transform is not None
    np.testing.assert_allclose(data.transform(data.test_images, None)[1, 0, 1], [6 / 255, 7 / 255])


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("astray", r"data.py:12: dataset: found uint8 \(2, 1, 2, 2\), expected float32 images of"),
        ("restless", r"data.py:15: dataset: found different images for the same rng, expected all"),
        ("broken", r"data.py:19: dataset: found broken\(images, None\) raised AttributeError"),
        ("nothing", r"dataset: found nothing, a int, expected a function \(images, rng\)"),
        ("missing", r"no 'missing' in it; it defines function, noisy, astray, restless, broken"),
    ],
)
def test_an_invalid_transform(tmp_path: Path, name: str, expected: str) -> None:
    (tmp_path / "data.py").write_text(NUMBERS, encoding="utf-8")
    with pytest.raises(ScenarioError, match=expected):
        own(name).prepare(tmp_path / "cache", environment={}, folder=tmp_path)


def test_results_of_a_transform_are_checked_in_a_node(tmp_path: Path) -> None:
    (tmp_path / "custom").mkdir()
    (tmp_path / "custom" / "data.py").write_text(NUMBERS, encoding="utf-8")
    transform = own("astray").make_ready(tmp_path)
    assert transform is not None
    with pytest.raises(
        UserCodeError, match=r"data.py:12: astray returned uint8 \(1, 1, 2, 2\), expected"
    ):
        transform(np.zeros((1, 1, 2, 2), np.uint8), None)


TOKENS = """
import numpy as np
x, y = np.array([[0, 4, 2], [1, 1, 0]]), np.array([[4, 2, 1], [1, -100, -100]])

def function():
    return x, y, x[:1], y[:1]
"""


def test_tokens_with_a_label_for_each(tmp_path: Path) -> None:
    data = read(tmp_path, TOKENS)
    assert (data.image_shape, data.classes, data.tokens) == ((3,), 5, 3)
    assert (data.inputs, data.targets) == ("tokens", "tokens")
    assert data.train_images.tolist() == [[0, 4, 2], [1, 1, 0]]
    assert data.train_labels.tolist() == [[4, 2, 1], [1, -100, -100]]
    images, labels = data.batch(np.array([1]))
    assert images.dtype == np.int32
    assert labels.tolist() == [[1, -100, -100]]


@pytest.mark.parametrize(
    ("returned", "expected"),
    [
        (
            "x, y[:, 1:], x, y",
            r"train_labels of shape .2, 2. .*, expected integers of shape .2, 3.",
        ),
        ("x, y * 0 - 100, x, y", r"no label that counts in train_labels\[0\], expected at least"),
        ("x, y - 5, x, y", "token -105 in train_labels, expected tokens from 0 to .*, or -100 for"),
        ("x - 1, y, x, y", "token -1 in train_images, expected tokens from 0 to 999,999"),
        ("x, y, x[:, :2], y[:, :2]", r"test_images of shape \(2,\) each, expected \(3,\)"),
        ("x, y + 0.5, x, y", "train_labels of shape .2, 3. and type float64, expected integers"),
    ],
)
def test_tokens_that_do_not_fit(tmp_path: Path, returned: str, expected: str) -> None:
    with pytest.raises(ScenarioError, match=expected):
        read(tmp_path, TOKENS.replace("x, y, x[:1], y[:1]", returned))


def test_a_transform_of_tokens(tmp_path: Path) -> None:
    (tmp_path / "data.py").write_text(TOKENS, encoding="utf-8")
    own = {"name": "custom", "file": "data.py", "class": "function", "transform": "function"}
    with pytest.raises(ScenarioError, match="found a transform of tokens, expected no transform"):
        CustomDataset.model_validate(own).prepare(tmp_path, environment={}, folder=tmp_path)
