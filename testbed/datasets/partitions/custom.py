"""A user-defined partition: a function in a Python file.

    dataset: {digits: {partition: {custom: {file: ./mine.py, class: halves, ratio: 0.3}}}}

It is called with the labels (n,) of all training samples, the number of workers and a seeded
generator; every other key is a keyword argument.

    def halves(labels, workers, rng, *, ratio):
        order = rng.permutation(len(labels))
        return np.array_split(order[: int(ratio * len(order))], workers)

It returns the samples of each worker, as indices into the training set. A sample may have several
workers, or none. Every node calls it: all randomness must come from ``rng``.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import PrivateAttr

from testbed.datasets.partitions.base import Samples
from testbed.values.user_code import OwnCode, UserCode

EXPECTED = "a function (labels, workers, rng) that returns the samples of each worker"
GIVEN = 3
"""Number of positional arguments of the user's function."""


class CustomPartition(OwnCode):
    """A user-defined partition; every other key is a keyword argument of the user's function."""

    NEEDS_LABELS: ClassVar[bool] = False
    OVERLAPS: ClassVar[bool] = True

    _code: UserCode = PrivateAttr()
    _function: Callable[..., object] = PrivateAttr()

    def opened(self, folder: Path, *, users: Samples | None = None) -> CustomPartition:
        """Load the user's function from the file in ``folder``.

        Raises:
            ScenarioError: the file or the function is missing.
            UserFileError: the file failed.
        """
        code = UserCode(folder / self.file, self.class_name, "dataset.partition")
        found = self.model_copy()
        found._code, found._function = code, code.load(EXPECTED)
        return found

    def assign(
        self, chosen: Samples, labels: Samples, workers: int, *, rng: np.random.Generator
    ) -> list[Samples]:
        """Return what the user's function returns, of the chosen samples.

        Raises:
            ScenarioError: it returned something else.
            UserFileError: it failed.
        """
        code, draws = self._code, int(rng.integers(2**63))

        def made() -> list[NDArray[Any]]:
            given = np.random.default_rng(draws)
            parts: Any = self._function(labels.copy(), workers, given, **self.options)
            return [np.asarray(part) for part in parts]

        doing = f"{code.name}(labels, {workers}, rng)"
        parts = code.call(made, doing=doing, expected=EXPECTED)
        if flaw := _flaw(parts, workers, len(labels)):
            expected = f"{workers} lists of different samples from 0 to {len(labels) - 1:,}"
            raise code.error(f"{doing} returned {flaw}", expected)
        again = code.call(made, doing=doing, expected=EXPECTED)
        if [part.tolist() for part in parts] != [part.tolist() for part in again]:
            found = f"{doing} returned other samples for the same rng"
            expected = "all randomness from rng: every node calls it"
            raise code.error(found, expected)
        return [np.intersect1d(part, chosen) for part in parts]


def _flaw(parts: list[NDArray[Any]], workers: int, samples: int) -> str:
    """Return why these are no samples of each worker; empty if they are."""
    if len(parts) != workers:
        return f"{len(parts)} lists"
    for number, part in enumerate(parts):
        if not part.size:
            return f"no samples for w{number}"
        if part.ndim != 1 or part.dtype.kind not in "ui":
            return f"{part.dtype} {part.shape} for w{number}"
        if part.min() < 0 or part.max() >= samples:
            strange = part.min() if part.min() < 0 else part.max()
            return f"sample {strange} for w{number}"
        if len(np.unique(part)) < len(part):
            return f"a sample twice for w{number}"
    return ""
