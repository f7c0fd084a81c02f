"""Partitions that a file determines: lists of samples, or the user of each sample.

Both files are JSON. Samples are numbered from 0 in the order of the data set.

    [[0, 5, 7], [1, 2]]                         lists: the samples of w0, of w1, ...
    {"alice": [0, 5, 7], "bob": [1, 2]}         the same with names; in the order of the file
    ["alice", "bob", "bob", "carol", ...]       by_user: the user of each training sample

A data set that knows its users needs no file for ``by_user``.
"""

from __future__ import annotations

import json
from abc import ABC
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import Field, PrivateAttr

from testbed.datasets.partitions.base import PartitionConfig, Samples
from testbed.errors import Problem, ScenarioError

JsonFile = Annotated[str, Field(pattern=r"[^/]\.json$")]

LARGEST_BYTES = 256 * 2**20
_PATH = "dataset.partition"


class FilePartition(PartitionConfig, ABC):
    """Base of partitions that a JSON file determines.

    Attributes:
        file: the file, relative to the scenario.
    """

    file: JsonFile | None
    _path: Path = PrivateAttr()
    _content: Any = PrivateAttr()

    def opened(self, folder: Path, *, users: Samples | None = None) -> Self:
        """Read the file; see the base class."""
        found = self.model_copy()
        found._content = users if self.file is None else found._read(folder / self.file)
        return found

    def _read(self, path: Path) -> Any:
        self._path = path
        try:
            with self._path.open("rb") as file:
                text = file.read(LARGEST_BYTES + 1)
            if len(text) > LARGEST_BYTES:
                raise self._error("a larger file", f"at most {LARGEST_BYTES // 2**20} MiB")
            return json.loads(text)
        except json.JSONDecodeError as error:
            raise self._error(error.msg, "JSON", line=error.lineno) from None
        except (UnicodeDecodeError, RecursionError):
            raise self._error("another format", "JSON") from None
        except OSError as error:
            found = f"{self.file}: {error.strerror}"
            expected = "a JSON file, relative to the scenario's folder"
            raise ScenarioError.at(f"{_PATH}.file", found, expected) from None

    def _error(self, found: str, expected: str, *, line: int = 0) -> ScenarioError:
        if self.file is None:
            return ScenarioError.at(_PATH, found, expected)
        return ScenarioError([Problem(str(self._path), line, _PATH, found, expected)])


class Lists(FilePartition):
    """Every worker has the samples that a list in a JSON file names; several may have the same.

    Other tools write such files: a list for each worker, or an object with a list for each name.
    """

    OVERLAPS = True

    name: Literal["lists"]
    file: JsonFile

    def assign(
        self, chosen: Samples, labels: Samples, workers: int, *, rng: np.random.Generator
    ) -> list[Samples]:
        lists = self._content
        if isinstance(lists, dict):
            lists = list(lists.values())
        if not isinstance(lists, list) or len(lists) != workers:
            found = f"{len(lists):,} lists" if isinstance(lists, list) else "no lists"
            expected = f"a list of samples for each of the {workers:,} workers: change the file or"
            raise self._error(found, f"{expected} workers.count")
        return [
            np.intersect1d(self._samples(number, one, len(labels)), chosen)
            for number, one in enumerate(lists)
        ]

    def _samples(self, number: int, listed: object, count: int) -> Samples:
        """Check one list and return it."""
        expected = f"numbers of samples from 0 to {count - 1:,}, each once"
        if not isinstance(listed, list) or not listed:
            found = "an empty list" if listed == [] else f"a {type(listed).__name__}"
            raise self._error(f"{found} for w{number}", f"a list of {expected}")
        for one in listed:
            if type(one) is not int or not 0 <= one < count:
                raise self._error(f"{json.dumps(one)[:40]} in the list of w{number}", expected)
        if len(set(listed)) < len(listed):
            raise self._error(f"a sample twice in the list of w{number}", expected)
        return np.array(listed, np.int64)


class ByUser(FilePartition):
    """All samples of a user stay together: users are dealt to workers, equally many each.

    A JSON file has the user of each training sample, or the data set itself, as LEAF's do (S.
    Caldas et al.: LEAF: a benchmark for federated settings, 2018, arXiv:1812.01097). With as many
    users as workers, each worker is one user. Which users a worker gets is drawn.

    Attributes:
        file: the file, relative to the scenario; by default the users of the data set.
    """

    name: Literal["by_user"]
    file: JsonFile | None = None

    def assign(
        self, chosen: Samples, labels: Samples, workers: int, *, rng: np.random.Generator
    ) -> list[Samples]:
        of = self._of_data_set() if self.file is None else self._of_file(len(labels))
        present = np.unique(of[chosen])
        if len(present) < workers:
            expected = f"at least {workers:,}, one for each worker: use fewer workers"
            raise self._error(f"{len(present):,} users of the samples in use", expected)
        hands = np.array_split(rng.permutation(present), workers)
        return [chosen[np.isin(of[chosen], hand)] for hand in hands]

    def _of_data_set(self) -> Samples:
        """Return the user of each sample that the data set knows."""
        users: Samples | None = self._content
        if users is None:
            expected = "`file`, with the user of each sample, or a data set that knows its users"
            raise self._error("no users in the data set", expected)
        return users

    def _of_file(self, count: int) -> Samples:
        """Return the user of each sample by the file, as numbers from 0."""
        users = self._content
        if not isinstance(users, list) or len(users) != count:
            found = f"{len(users):,} users" if isinstance(users, list) else "no list"
            raise self._error(found, f"a list with the user of each of {count:,} samples")
        for place, user in enumerate(users):
            if type(user) not in (int, str):
                found = f"{json.dumps(user)[:40]} as the user of sample {place:,}"
                raise self._error(found, "a name or a number")
        return np.unique([str(user) for user in users], return_inverse=True)[1]
