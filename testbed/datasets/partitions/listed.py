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

LARGEST_BYTES = 256 * 2**20
_PATH = "dataset.partition"


class FilePartition(PartitionConfig, ABC):
    """Base of partitions that a JSON file determines.

    Attributes:
        file: the file, relative to the scenario.
    """

    file: Annotated[str, Field(pattern=r"[^/]\.json$")]
    _path: Path = PrivateAttr()
    _content: Any = PrivateAttr()

    def opened(self, folder: Path, *, users: Samples | None = None) -> Self:
        """Read the file; see the base class."""
        found = self.model_copy()
        found._path = folder / self.file
        found._content = found._read()
        return found

    def _read(self) -> Any:
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
        return ScenarioError([Problem(str(self._path), line, _PATH, found, expected)])


class Lists(FilePartition):
    """Every worker has the samples that a list in a JSON file names; several may have the same.

    Other tools write such files: a list for each worker, or an object with a list for each name.
    """

    OVERLAPS = True

    name: Literal["lists"]

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

    A JSON file has the user of each training sample, as LEAF's data sets do (S. Caldas et al.:
    LEAF: a benchmark for federated settings, 2018, arXiv:1812.01097). With as many users as
    workers, each worker is one user. Which users a worker gets is drawn.

    Attributes:
        file: the file, relative to the scenario; by default the users are those of the data set,
            such as the speakers of a ``text``.
    """

    name: Literal["by_user"]
    file: Annotated[str, Field(pattern=r"[^/]\.json$")] | None = None  # type: ignore[assignment]

    def opened(self, folder: Path, *, users: Samples | None = None) -> Self:
        """Read the file, or take the users of the data set."""
        if self.file is not None:
            return super().opened(folder, users=users)
        if users is None:
            found = "by_user, but the data set does not know its users"
            expected = "`file`, with the user of each training sample, or another partition"
            raise ScenarioError.at(_PATH, found, expected)
        found_users = self.model_copy()
        found_users._content = users.tolist()
        return found_users

    def assign(
        self, chosen: Samples, labels: Samples, workers: int, *, rng: np.random.Generator
    ) -> list[Samples]:
        users = self._content
        if not isinstance(users, list) or len(users) != len(labels):
            found = f"{len(users):,} users" if isinstance(users, list) else "no list"
            raise self._error(found, f"a list with the user of each of {len(labels):,} samples")
        for place, user in enumerate(users):
            if type(user) not in (int, str):
                found = f"{json.dumps(user)[:40]} as the user of sample {place:,}"
                raise self._error(found, "a name or a number")
        _, of = np.unique([str(user) for user in users], return_inverse=True)
        present = np.unique(of[chosen])
        if len(present) < workers:
            expected = f"at least {workers:,}, one for each worker: use fewer workers"
            found = f"{len(present):,} users of the samples in use"
            if self.file is None:
                raise ScenarioError.at(_PATH, found, expected)
            raise self._error(found, expected)
        hands = np.array_split(rng.permutation(present), workers)
        return [chosen[np.isin(of[chosen], hand)] for hand in hands]
