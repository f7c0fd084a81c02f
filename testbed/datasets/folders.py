"""Data sets in a folder of the user's: what readers of several formats share.

A reader returns the samples of the training and of the test files as ``Samples``; here they get
their final form. Images of bytes are standardised one by one, as in the built-in data sets; other
numbers are used unchanged. The key in the cache is the content of the files.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from testbed.datasets.base import DatasetConfig
from testbed.datasets.prepared import Images, Labels, Prepared, prepare_once, standardised
from testbed.errors import DataError, ScenarioError
from testbed.values.fields import Count, Word
from testbed.values.seeds import stream


@dataclass(frozen=True, eq=False)
class Samples:
    """Samples of the training or the test files.

    Attributes:
        images: shape (n, ...), numbers.
        labels: shape (n,): whole numbers from 0, names (text), or floats to predict.
        classes: number of classes if the files say so; else 0.
        users: name of the user of each sample, shape (n,); None if unknown.
    """

    images: NDArray[Any]
    labels: NDArray[Any]
    classes: int = 0
    users: NDArray[Any] | None = None

    def at(self, chosen: NDArray[np.int64]) -> Samples:
        """Return the samples with these indices."""
        users = None if self.users is None else self.users[chosen]
        return replace(self, images=self.images[chosen], labels=self.labels[chosen], users=users)


class FolderDataset(DatasetConfig, ABC):
    """Base of data sets in a folder of the user's.

    Attributes:
        folder: the folder, relative to the scenario.
        shape: channels, height and width of an image, if its numbers are stored in another shape;
            by default a list of numbers is one row.
        standardise: whether every image gets a mean of 0 and a deviation of 1; by default those of
            bytes do, and other numbers are used unchanged.
        test_share: share of the training samples that is tested on instead, drawn at random; by
            default there are test files.
    """

    name: str
    folder: Word
    shape: tuple[Count, Count, Count] | None = None
    standardise: bool | None = None
    test_share: Annotated[float, Field(gt=0, lt=1, allow_inf_nan=False)] | None = None

    @abstractmethod
    def files(self, folder: Path) -> tuple[Sequence[Path], Sequence[Path]]:
        """Return the training and the test files in a folder; the latter are none with a share.

        Raises:
            DataError: there are no training files, or a file that lists them is damaged.
        """

    def beside(self, folder: Path) -> Sequence[Path]:
        """Return other files in a folder that its samples may consist of."""
        return ()

    @abstractmethod
    def read(self, files: Sequence[Path], folder: Path) -> Samples:
        """Read the samples of some files of a folder, in order.

        Raises:
            DataError: a file is damaged, or has other content; names file and position.
            ScenarioError: an option does not fit the files.
        """

    def drawn_for_test(self, samples: Samples) -> NDArray[np.bool_]:
        """Draw which of the samples become test samples; at least one."""
        assert self.test_share is not None
        draws = stream(0, "test_share", self.name)
        return drawn_share(len(samples.labels), self.test_share, draws)

    def prepare(self, cache: Path, *, environment: Mapping[str, str], folder: Path) -> Path:
        """Prepare the data set; see the base class. All files are read at every start of a run."""
        place = folder / self.folder
        if not place.is_dir():
            found = f"{self.folder}, which is no folder"
            expected = "the folder of the data set, relative to that of the scenario"
            raise ScenarioError.at("dataset.folder", found, expected)
        train, test = self.files(place)
        if not test and self.test_share is None:
            found = f"no test files in {place}"
            raise ScenarioError.at("dataset", found, "such files, or `test_share`, such as 0.2")
        options = self.model_dump_json(exclude={"folder", "partition", "fraction", "held_out"})
        digest = hashlib.sha256(options.encode())
        source = {"name": self.name, "of": place.name}
        for file in (*train, *test):
            source[str(file.relative_to(place))] = f"sha256 {(found := _digest(file))}"
            digest.update(f"{found} {file in test}".encode())
        for file in self.beside(place):
            digest.update(f"{file.name} {_digest(file)}".encode())
        target = cache / "prepared" / f"{self.name}-1-{digest.hexdigest()[:16]}"
        return prepare_once(target, lambda: self._prepared(place, (train, test), source=source))

    def _prepared(
        self,
        place: Path,
        files: tuple[Sequence[Path], Sequence[Path]],
        *,
        source: Mapping[str, str],
    ) -> Prepared:
        train, test = files
        samples, halves = self.read(train, place), []
        if test:
            halves = [samples, self.read(test, place)]
        else:
            for_test = self.drawn_for_test(samples)
            if not for_test.any():
                raise DataError(f"{self.folder}: found too few samples to test on a share of them.")
            halves = [samples.at(np.flatnonzero(one)) for one in (~for_test, for_test)]
        labels, classes = _numbered(*halves)
        images = [self._images(one.images) for one in halves]
        if images[0].shape[1:] != images[1].shape[1:]:
            shapes = " and of ".join(str(one.shape[1:]) for one in images)
            raise DataError(f"{self.folder}: training and test images are of {shapes}.")
        users = halves[0].users
        return Prepared(
            *(images[0], labels[0], images[1], labels[1]),
            classes=classes,
            source=source,
            train_users=None if users is None else np.unique(users, return_inverse=True)[1],
        )

    def _images(self, numbers: NDArray[Any]) -> Images:
        """Return images of shape (n, channels, height, width) from numbers of shape (n, ...)."""
        wanted = self.shape or (1,) * (4 - numbers.ndim) + numbers.shape[1:]
        if len(wanted) != 3 or np.prod(wanted) != numbers[0].size:
            found = f"samples of {numbers.shape[1:]} numbers"
            expected = "`shape: [channels, height, width]` with as many"
            raise ScenarioError.at("dataset.shape", found, expected)
        images = numbers.reshape(len(numbers), *wanted)
        of_bytes = images.dtype == np.uint8
        if of_bytes if self.standardise is None else self.standardise:
            return standardised(images)
        ready: Images = images.astype(np.float32)
        return ready / np.float32(255) if of_bytes else ready


def drawn_share(count: int, share: float, draws: np.random.Generator) -> NDArray[np.bool_]:
    """Choose a share of the samples at random: at least one, but one is left."""
    chosen = np.zeros(count, bool)
    number = min(count - 1, max(1, round(share * count)))
    chosen[draws.choice(count, number, replace=False)] = True
    return chosen


def _numbered(train: Samples, test: Samples) -> tuple[tuple[Labels, Labels], int]:
    """Return the labels of both as numbers, and the number of classes; 0 for numbers to predict."""
    both = np.concatenate([train.labels, test.labels])
    cut = len(train.labels)
    if both.dtype.kind == "f":
        numbers = both.astype(np.float32)
        return (numbers[:cut], numbers[cut:]), 0
    if both.dtype.kind in "iu":
        labels, classes = both.astype(np.int64), train.classes or int(both.max()) + 1
    else:
        names, labels = np.unique(both.astype(str), return_inverse=True)
        classes = len(names)
    return (labels[:cut], labels[cut:]), classes


def _digest(file: Path) -> str:
    try:
        with file.open("rb") as content:
            return hashlib.file_digest(content, "sha256").hexdigest()
    except OSError as error:
        raise DataError(f"{file} cannot be read: {error.strerror or error}.") from error
