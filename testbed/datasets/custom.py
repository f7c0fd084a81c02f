"""A user-defined data set: a class or a function in a Python file.

    dataset: {custom: {file: ./data.py, class: load, noise: 0.1}}

It is called exactly once at every start of a run, with every key of the scenario that is not an
option of the data set as a keyword argument: ``load(noise=0.1)``. It returns a tuple
(train_images, train_labels, test_images, test_labels), or an object with these attributes.

    def load(*, noise):
        points = np.load(f"/data/points-{noise}.npz")
        return points["x"], points["y"], points["x_test"], points["y_test"]

- Images: numbers of shape (n, channels, height, width), or (n, height, width) for one channel. They
  are used unchanged, as float32: scale them as the model requires. Integers, such as ids, that
  float32 would round (magnitudes above 16,777,216) are refused.
- Labels: integers of shape (n,), at least 0 and below MOST_CLASSES; the maximum of the training set
  gives the number of classes. Or floats of shape (n,): numbers to predict, without classes.
- For language models: images are integers of shape (n, length), tokens from 0, and labels are
  tokens too, one for each position, of the same shape; -100 where a label is not counted, such as
  padding. The largest token of all four arrays gives the number of classes.

With ``transform: distorted``, the function of that name in the same file makes every batch ready,
on the nodes. Images of type uint8 then stay uint8, a quarter of the memory.

    def distorted(images, rng):
        ready = images.astype("float32") / 255
        if rng is not None:
            ready += rng.normal(0, 0.1, ready.shape)
        return ready

It maps a batch (b, channels, height, width) to float32 of the same shape. All its randomness must
come from ``rng``, which is new for every step and the same live and simulated, so that runs are
reproducible; for testing, ``rng`` is None.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from testbed.datasets.base import DatasetConfig
from testbed.datasets.prepared import (
    PARTS,
    Images,
    Labels,
    Prepared,
    RawImages,
    Tokens,
    Transform,
    prepare_once,
)
from testbed.errors import UserCodeError
from testbed.values.samples import NOT_COUNTED
from testbed.values.user_code import OwnCode, UserCode

MOST_CLASSES = 1_000_000
"""Every class costs a score per image, and parameters."""

LARGEST_INTEGER = 2**24
"""Largest integer up to which float32 is exact; beyond, two ids could become equal."""

CONTRACT = f"({', '.join(PARTS)}), or an object with these attributes"


class CustomDataset(DatasetConfig, OwnCode):
    """A user-defined data set; every other key is a keyword argument of the user's code.

    Attributes:
        transform: function in the file that prepares batches of images; by default images are used
            unchanged.
    """

    input_type = None
    targets = None

    transform: Annotated[str, Field(pattern=r"^[A-Za-z_]\w*$")] | None = None

    def prepare(self, cache: Path, *, environment: Mapping[str, str], folder: Path) -> Path:
        """Prepare the data set. Its cache key is the returned data, not the text of the code."""
        return self.prepare_own(cache, folder=folder)

    def prepare_own(
        self, cache: Path, *, folder: Path, opened: Callable[[], None] = lambda: None
    ) -> Path:
        """Implement ``prepare``; call ``opened`` once the file is read: the rest may take long."""
        code = UserCode(folder / self.file, self.class_name, path_in_scenario="dataset")
        make = code.load(f"a class or function that returns {CONTRACT}")
        opened()
        data = _read(make, code, self.options, raw=self.transform is not None)
        if self.transform is not None:
            if data.inputs == "tokens":
                raise code.error("a transform of tokens", "no transform: it makes images ready")
            OwnTransform.of(code, self.transform).check(data.train_images)
        digest = hashlib.sha256()
        for part in PARTS:
            digest.update(str(getattr(data, part).shape).encode())
            digest.update(getattr(data, part))
        return prepare_once(
            cache / "prepared" / f"custom-1-{digest.hexdigest()[:16]}", lambda: data
        )

    def make_ready(self, folder: Path) -> Transform | None:
        """Return the user's transform from the run folder, if there is one."""
        if self.transform is None:
            return None
        return OwnTransform.of(self.copied(folder, "dataset"), self.transform)


@dataclass(frozen=True)
class OwnTransform:
    """A user's transform with checks of its results.

    Attributes:
        function: the user's function.
        code: its location.
    """

    function: Callable[[NDArray[Any], np.random.Generator | None], object]
    code: UserCode

    @classmethod
    def of(cls, code: UserCode, name: str) -> OwnTransform:
        """Load the function called ``name`` from the file of the user's code.

        Raises:
            ScenarioError: the function does not exist.
            UserFileError: the file failed.
        """
        own = replace(code, name=name)
        return cls(own.load("a function (images, rng) that returns images"), own)

    def __call__(self, images: NDArray[Any], rng: np.random.Generator | None) -> Images:
        """Make a batch ready; the function gets a copy that it may change.

        Raises:
            UserCodeError: the function returned something else.
        """
        given = images.copy()
        ready = self.function(given, rng)
        if flaw := _unready(ready, given.shape):
            place = f"{self.code.path.name}:{self.code.line()}: {self.code.name}"
            raise UserCodeError(f"{place} returned {flaw}, expected float32 {given.shape}.")
        return np.ascontiguousarray(ready, np.float32)

    def check(self, images: NDArray[Any]) -> None:
        """Try the function on two images, as in training and as in testing.

        Raises:
            ScenarioError: it returns something else, or different results for the same generator.
            UserFileError: the function failed.
        """
        doing, two = f"{self.code.name}(images, rng)", images[:2]

        def trained() -> object:
            return self.function(two.copy(), np.random.default_rng(0))

        expected = f"float32 images of shape {two.shape}"
        first = self.code.call(trained, doing=doing, expected=expected)
        again = self.code.call(trained, doing=doing, expected=expected)
        tested = self.code.call(
            lambda: self.function(two.copy(), None),
            doing=f"{self.code.name}(images, None)",
            expected=expected,
        )
        for ready in (first, tested):
            if flaw := _unready(ready, two.shape):
                raise self.code.error(flaw, expected)
        if not np.array_equal(np.asarray(first), np.asarray(again), equal_nan=True):
            found = "different images for the same rng"
            expected = "all randomness from rng, so that runs are reproducible"
            raise self.code.error(found, expected)


def _unready(ready: object, shape: tuple[int, ...]) -> str:
    """Describe a result that is not float32 images of this shape; empty if it is valid."""
    if not isinstance(ready, np.ndarray):
        return f"a {type(ready).__name__}"
    if ready.shape != shape or ready.dtype != np.float32:
        return f"{ready.dtype} {ready.shape}"
    return ""


def _read(
    make: Callable[..., object], code: UserCode, options: Mapping[str, Any], *, raw: bool
) -> Prepared:
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
            raise code.error(f"no {', '.join(missing)} in the result of {code.name}()", CONTRACT)
    train_images, train_labels = _half("train", values, code, raw=raw)
    test_images, test_labels = _half("test", values, code, raw=raw)
    if train_images.shape[1:] != test_images.shape[1:]:
        found = f"test_images of shape {test_images.shape[1:]} each"
        raise code.error(found, f"{train_images.shape[1:]}, as train_images")
    if train_labels.dtype != test_labels.dtype:
        found, expected = f"test_labels of type {test_labels.dtype}", f"{train_labels.dtype}"
        raise code.error(found, f"{expected}, as train_labels")
    classes = int(train_labels.max()) + 1 if train_labels.dtype == np.int64 else 0
    if classes and train_images.ndim == train_labels.ndim == 2:  # a language model reads its labels
        classes = 1 + max(int(one.max()) for one in (train_images, test_images, train_labels))
        classes = max(classes, 1 + int(test_labels.max()))
    if classes and test_labels.max() >= classes:
        found = f"label {test_labels.max()} in test_labels"
        raise code.error(found, f"at most {classes - 1}, the maximum of train_labels")
    source = {"name": "custom", "of": f"{code.path.name}: {code.name}"}
    return Prepared(train_images, train_labels, test_images, test_labels, classes, source)


def _half(
    which: str, values: Mapping[str, Any], code: UserCode, *, raw: bool
) -> tuple[RawImages | Tokens, Labels]:
    """Return images and labels of the training or the test set, checked and converted."""
    images = _array(f"{which}_images", values, code)
    labels = _array(f"{which}_labels", values, code)
    if images.ndim == labels.ndim == 2 and images.dtype.kind in "ui" and images.size:
        tokens = _tokens(f"{which}_images", images, code)
        return tokens.astype(np.int32), _labels(which, len(images), values, code, tokens.shape)
    if images.ndim == 3:
        images = images[:, None]
    if images.ndim != 4 or images.dtype.kind not in "uif" or not images.size:
        found = f"{which}_images of shape {images.shape} and type {images.dtype}"
        expected = "numbers of shape (n, channels, height, width), n above 0"
        if images.ndim == 2:
            expected += (
                "; rows of a table as x[:, None, None, :], which a model receives as (b, 1, 1, d)"
                "; tokens with a label for each, as integers of shape (n, length)"
            )
        raise code.error(found, expected)
    labels = _labels(which, len(images), values, code)
    if raw and images.dtype == np.uint8:
        return np.ascontiguousarray(images), labels
    if images.dtype.kind in "ui":
        _check_integers(f"{which}_images", images, code)
    return _finite(f"{which}_images", images, code), labels


def _finite(name: str, numbers: NDArray[Any], code: UserCode) -> Images:
    with np.errstate(over="ignore"):  # too large numbers become infinite, and are refused below
        numbers = np.ascontiguousarray(numbers, np.float32)
    finite = np.isfinite(numbers).reshape(len(numbers), -1).all(axis=1)
    if not finite.all():
        found = f"NaN or infinity in {name}[{int(np.argmin(finite))}]"
        raise code.error(found, "finite numbers within the range of float32")
    return numbers


def _check_integers(name: str, images: NDArray[Any], code: UserCode) -> None:
    for value in (int(images.min()), int(images.max())):
        if abs(value) > LARGEST_INTEGER:
            expected = (
                f"integers of at most {LARGEST_INTEGER:,}, which float32 represents exactly, or "
                "floats if rounding is harmless; ids can be renumbered from 0"
            )
            raise code.error(f"the integer {value:,} in {name}", expected)


def _labels(
    which: str,
    count: int,
    values: Mapping[str, Any],
    code: UserCode,
    tokens: tuple[int, ...] = (),
) -> Labels:
    """Return labels, numbers to predict, or a label for each of the tokens of this shape."""
    labels = _array(f"{which}_labels", values, code)
    if labels.shape == tokens and labels.dtype.kind in "ui":
        return _tokens(f"{which}_labels", labels, code, counted=labels != NOT_COUNTED)
    if labels.shape != (count,) or labels.dtype.kind not in "uif":
        found = f"{which}_labels of shape {labels.shape} and type {labels.dtype}"
        expected = f"integers or floats of shape ({count},), one for each image"
        if tokens:
            expected = f"integers of shape {tokens}, one for each token"
        raise code.error(found, expected)
    if labels.dtype.kind == "f":
        return _finite(f"{which}_labels", labels, code)
    for label in (labels.min(), labels.max()):
        if not 0 <= label < MOST_CLASSES:
            expected = f"labels from 0 to {MOST_CLASSES - 1:,}"
            if label < 0:
                expected += "; a negative one may come from a missing value (NaN) made an integer"
            raise code.error(f"label {label} in {which}_labels", expected)
    return np.ascontiguousarray(labels, np.int64)


def _tokens(
    name: str, tokens: NDArray[Any], code: UserCode, *, counted: NDArray[np.bool_] | None = None
) -> NDArray[np.int64]:
    """Return rows of tokens, each of which has one that counts; by default all do."""
    if counted is not None and not (some := counted.any(axis=1)).all():
        found = f"no label that counts in {name}[{int(np.argmin(some))}]"
        raise code.error(found, f"at least one that is not {NOT_COUNTED} in each row")
    for token in (tokens[counted].min() if counted is not None else tokens.min(), tokens.max()):
        if not 0 <= token < MOST_CLASSES:
            expected = f"tokens from 0 to {MOST_CLASSES - 1:,}"
            if counted is not None:
                expected += f", or {NOT_COUNTED} for labels that are not counted"
            raise code.error(f"token {token} in {name}", expected)
    return np.ascontiguousarray(tokens, np.int64)


def _array(name: str, values: Mapping[str, Any], code: UserCode) -> NDArray[Any]:
    return code.call(lambda: np.asarray(values[name]), doing=f"{name}", expected="an array")
