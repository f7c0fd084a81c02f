"""Data sets in LEAF's JSON files, such as FEMNIST and CelebA, with the user of every sample.

S. Caldas et al.: LEAF: a benchmark for federated settings, 2018, arXiv:1812.01097. The folder has
LEAF's ``train`` and ``test``, each with one or more files, or such files only:

    {"users": ["f0812", ..], "num_samples": [181, ..],
     "user_data": {"f0812": {"x": [[1.0, 0.98, ..], ..], "y": [5, ..]}, ..}}

A sample in ``x`` is a list of numbers, or lists of lists; images of FEMNIST are 784 numbers from 0
to 1 (``shape: [1, 28, 28]``). Those of CelebA are the names of files in a folder of ``pictures``,
such as ``raw/img_align_celeba``. Without test files, every user gives ``test_share`` of its
samples, drawn at random, as LEAF's own split by samples does. ``by_user`` without a file partitions
by these users.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from testbed.datasets.custom import MOST_CLASSES
from testbed.datasets.folders import FolderDataset, Samples, drawn_share
from testbed.datasets.pictures import Flaw, PictureOptions, PictureReader
from testbed.errors import DataError
from testbed.values.fields import Word
from testbed.values.seeds import stream

LAYOUT = "LEAF's layout: users, num_samples and user_data, which has lists x and y for each user"


Picture = Callable[[str, Flaw], NDArray[np.uint8]]
"""Reads the picture with a name."""


class Leaf(PictureOptions, FolderDataset):
    """Samples of users in LEAF's JSON files: numbers, or names of pictures.

    Attributes:
        pictures: the folder in ``folder`` with the pictures that the samples name.
    """

    name: Literal["leaf"]
    pictures: Word | None = None

    def beside(self, folder: Path) -> Sequence[Path]:
        """Return the pictures, whether they are named or not."""
        return sorted((folder / self.pictures).glob("*")) if self.pictures else ()

    def files(self, folder: Path) -> tuple[Sequence[Path], Sequence[Path]]:
        """Return the files in ``train`` and ``test``, or those in the folder itself."""
        train, test = (sorted((folder / half).glob("*.json")) for half in ("train", "test"))
        if not train:
            train = sorted(folder.glob("*.json"))
        if not train:
            hint = "LEAF writes them into `train` and `test`; before its split, into `all_data`."
            raise DataError(f"{folder}: found no JSON files, expected those of LEAF.", hint=hint)
        return train, test if self.test_share is None else ()

    def read(self, files: Sequence[Path], folder: Path) -> Samples:
        """Read the samples of all users, one user after the other."""
        images, labels, users = [], [], []
        picture = None
        if self.pictures:
            picture = partial(_picture, folder / self.pictures, self.picture_reader())
        for file in files:
            for user, x, y in _users(file, picture):
                images.append(x)
                labels.append(y)
                users += [user] * len(y)
                if x.shape[1:] != images[0].shape[1:]:
                    found = f"{x.shape[1:]} numbers a sample"
                    raise _flaw(file, user, "x", found, f"{images[0].shape[1:]}, as before")
        return Samples(np.concatenate(images), np.concatenate(labels), users=np.array(users))

    def drawn_for_test(self, samples: Samples) -> NDArray[np.bool_]:
        """Draw a share of each user's samples; a user with one sample keeps it."""
        assert self.test_share is not None
        assert samples.users is not None
        names, of = np.unique(samples.users, return_inverse=True)
        chosen = np.zeros(len(of), bool)
        for number, name in enumerate(names):
            own = np.flatnonzero(of == number)
            draws = stream(0, "test_share", "leaf", str(name))
            chosen[own] = drawn_share(len(own), self.test_share, draws)
        return chosen


def _users(file: Path, picture: Picture | None) -> Iterator[tuple[str, NDArray[Any], NDArray[Any]]]:
    """Yield each user of a file that has samples, with its inputs and labels."""
    content = _content(file)
    data, users, counts = (content.get(key) for key in ("user_data", "users", "num_samples"))
    if not (isinstance(data, dict) and isinstance(users, list) and isinstance(counts, list)):
        raise DataError(f"{file}: found {_named(content)}, expected {LAYOUT}.")
    if len(users) != len(counts):
        found = f"{len(users):,} users and {len(counts):,} num_samples"
        raise DataError(f"{file}: found {found}, expected a number for each user.")
    for user, count in zip(users, counts, strict=True):
        one = data.get(user) if isinstance(user, str) else None
        if not isinstance(one, dict) or not all(isinstance(one.get(key), list) for key in "xy"):
            raise _flaw(file, user, "user_data", "no lists x and y", LAYOUT)
        if not len(one["x"]) == len(one["y"]) == count:
            found = f"{len(one['x']):,} in x, {len(one['y']):,} in y and num_samples {count}"
            raise _flaw(file, user, "x", found, "as many of each")
        if count:
            yield user, _inputs(file, user, one["x"], picture), _labels(file, user, one["y"])


def _content(file: Path) -> dict[str, Any]:
    try:
        content = json.loads(file.read_bytes())
    except json.JSONDecodeError as error:
        raise DataError(f"{file}:{error.lineno}: found {error.msg}, expected JSON.") from error
    except (UnicodeDecodeError, RecursionError) as error:
        raise DataError(f"{file}: found another format, expected JSON.") from error
    return content if isinstance(content, dict) else {}


def _picture(folder: Path, reader: PictureReader, name: str, flaw: Flaw) -> NDArray[np.uint8]:
    """Read the picture with this name in a folder."""
    file = folder / name
    if Path(name).name != name or not file.is_file():
        raise flaw(f"{name[:60]!r}", f"the name of a file in {folder}")
    return reader.read(file.read_bytes(), flaw)


def _inputs(
    file: Path, user: str, x: list[Any], picture: Picture | None
) -> NDArray[np.float32] | NDArray[np.uint8]:
    """Return a user's inputs, shape (n, ...)."""
    found: list[NDArray[Any]] = []
    for place, sample in enumerate(x):
        where = f"x[{place}]"
        if isinstance(sample, str) != (picture is not None):
            raise _mixed(file, user, where, sample)
        if picture is not None:
            found.append(picture(sample, partial(_flaw, file, user, where)))
            continue
        try:
            with np.errstate(over="ignore"):  # refused as infinite
                numbers = np.asarray(sample, np.float32)
        except (ValueError, TypeError):
            expected = "numbers, in lists of equal length"
            raise _flaw(file, user, where, "other values", expected) from None
        if not numbers.shape:
            raise _flaw(file, user, where, f"{sample}", "a list of numbers")
        if found and numbers.shape != found[0].shape:
            expected = f"{found[0].shape}, as in x[0]"
            raise _flaw(file, user, where, f"{numbers.shape} numbers", expected)
        if not np.isfinite(numbers).all():
            raise _flaw(file, user, where, "NaN or infinity", "finite numbers")
        found.append(numbers)
    return np.stack(found)


def _mixed(file: Path, user: str, where: str, sample: object) -> DataError:
    """Return the error for text without a folder of pictures, or other values with one."""
    if isinstance(sample, str):
        hint = "If it is the name of a picture, set `pictures`: its folder. Text is not supported."
        return _flaw(file, user, where, f"text, {sample[:20]!r}", "numbers", hint=hint)
    return _flaw(file, user, where, "other values", "the name of a picture, as `pictures` says")


def _labels(file: Path, user: str, y: list[Any]) -> NDArray[Any]:
    """Return a user's labels: whole numbers from 0, or floats to predict."""
    kind = int if all(type(label) is int for label in y) else float
    for place, label in enumerate(y):
        if type(label) not in (int, float) or not np.isfinite(label):
            expected = "labels from 0, or finite numbers to predict"
            raise _flaw(file, user, f"y[{place}]", json.dumps(label)[:40], expected)
        if kind is int and not 0 <= label < MOST_CLASSES:
            raise _flaw(file, user, f"y[{place}]", f"{label}", f"0 to {MOST_CLASSES - 1:,}")
    return np.array(y, np.int64 if kind is int else np.float64)


def _named(content: dict[str, Any]) -> str:
    return f"the keys {', '.join(content)[:80]}" if content else "no object with keys"


def _flaw(
    file: Path, user: object, where: str, found: str, expected: str, *, hint: str = ""
) -> DataError:
    place = f"{file}: user {user!r}: {where}"
    return DataError(f"{place}: found {found}, expected {expected}.", hint=hint)
