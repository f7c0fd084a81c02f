"""A data set of the user's own: a class or a function in a Python file.

    dataset: {custom: {file: ./data.py, class: load, noise: 0.1}}

It is called once at every start of a run, and nowhere but there, with every key of the scenario
that is none of the data set's own as a keyword: ``load(noise=0.1)``. What it returns is a tuple
(train_images, train_labels, test_images, test_labels), or has attributes of these names.

    def load(*, noise):
        points = np.load(f"/data/points-{noise}.npz")
        return points["x"], points["y"], points["x_test"], points["y_test"]

- Images: numbers of shape (n, channels, height, width), or (n, height, width) for one channel. They
  are used as they are, as float32: scale them as the model wants them.
- Labels: integers of shape (n,), from 0 on and below MOST_CLASSES; the highest of the training set
  gives the number of classes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from testbed.datasets.base import DatasetConfig
from testbed.datasets.prepared import PARTS, Images, Labels, Prepared, prepare_once
from testbed.user_code import OwnCode, UserCode

MOST_CLASSES = 1_000_000
"""Every class has a score for every image, and parameters behind it."""

CONTRACT = f"({', '.join(PARTS)}), or something with these attributes"


class CustomDataset(DatasetConfig, OwnCode):
    """A data set of the user's own; every other key is a keyword of the user's code."""

    def prepare(self, cache: Path, *, environment: Mapping[str, str], folder: Path) -> Path:
        """See the base class. What the user's code returns, not its text, decides what is new."""
        return self.prepare_own(cache, folder=folder)

    def prepare_own(
        self, cache: Path, *, folder: Path, opened: Callable[[], None] = lambda: None
    ) -> Path:
        """``prepare``; calls ``opened`` once the file is read: the rest may take its time."""
        code = UserCode(folder / self.file, self.class_name, path_in_scenario="dataset")
        make = code.load(f"a class or function that gives {CONTRACT}")
        opened()
        data = _read(make, code, self.options)
        digest = hashlib.sha256()
        for part in PARTS:
            digest.update(str(getattr(data, part).shape).encode())
            digest.update(getattr(data, part))
        return prepare_once(
            cache / "prepared" / f"custom-1-{digest.hexdigest()[:16]}", lambda: data
        )


def _read(make: object, code: UserCode, options: Mapping[str, Any]) -> Prepared:
    if not callable(make):
        raise code.error(f"{code.name}, a {type(make).__name__}", "a class or a function")
    keywords = ", ".join(f"{name}={value!r}" for name, value in options.items())
    doing = f"{code.name}({keywords})"
    made = code.call(lambda: make(**options), doing=doing, expected=CONTRACT)
    if isinstance(made, tuple | list):
        if len(made) != len(PARTS):
            raise code.error(f"{len(made)} values from {code.name}()", CONTRACT)
        values = dict(zip(PARTS, made, strict=True))
    else:
        values = {part: getattr(made, part, None) for part in PARTS}
        if missing := [part for part, value in values.items() if value is None]:
            raise code.error(f"no {', '.join(missing)} in what {code.name}() gives", CONTRACT)
    train_images, train_labels = _half("train", values, code)
    test_images, test_labels = _half("test", values, code)
    if train_images.shape[1:] != test_images.shape[1:]:
        found = f"test_images of shape {test_images.shape[1:]} each"
        raise code.error(found, f"{train_images.shape[1:]}, as the train_images have")
    classes = int(train_labels.max()) + 1
    if test_labels.max() >= classes:
        found = f"label {test_labels.max()} in test_labels"
        raise code.error(found, f"at most {classes - 1}, the highest of train_labels")
    source = {"name": "custom", "of": f"{code.path.name}: {code.name}"}
    return Prepared(train_images, train_labels, test_images, test_labels, classes, source)


def _half(which: str, values: Mapping[str, Any], code: UserCode) -> tuple[Images, Labels]:
    """Images and labels of the training or the test set, checked and of the right types."""
    images = _array(f"{which}_images", values, code)
    labels = _array(f"{which}_labels", values, code)
    if images.ndim == 3:
        images = images[:, None]
    if images.ndim != 4 or images.dtype.kind not in "uif" or not images.size:
        found = f"{which}_images of shape {images.shape} and type {images.dtype}"
        raise code.error(found, "numbers of shape (n, channels, height, width), n above 0")
    if labels.shape != (len(images),) or labels.dtype.kind not in "ui":
        found = f"{which}_labels of shape {labels.shape} and type {labels.dtype}"
        raise code.error(found, f"integers of shape ({len(images)},), one for each image")
    for label in (labels.min(), labels.max()):
        if not 0 <= label < MOST_CLASSES:
            expected = f"labels from 0 on, below {MOST_CLASSES:,}"
            raise code.error(f"label {label} in {which}_labels", expected)
    with np.errstate(over="ignore"):  # too large a number becomes infinite, and is refused below
        images = np.ascontiguousarray(images, np.float32)
    finite = np.isfinite(images).all(axis=(1, 2, 3))
    if not finite.all():
        found = f"NaN or infinity in {which}_images[{int(np.argmin(finite))}]"
        raise code.error(found, "finite numbers that float32 can hold")
    return images, np.ascontiguousarray(labels, np.int64)


def _array(name: str, values: Mapping[str, Any], code: UserCode) -> NDArray[Any]:
    return code.call(lambda: np.asarray(values[name]), doing=f"{name}", expected="an array")
