"""The contract of a data set: prepared once by whoever starts a run, mapped by every node.

    config.prepare(cache, environment=..., folder=...) -> Path      a folder of .npy files
    load(path)                                         -> Prepared  in testbed/datasets/prepared.py

Images are float32 and ready to be trained on. A config class imports nothing that only preparing
needs, so that a scenario can be read without it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import BaseModel, ConfigDict, Field

from testbed.datasets.partition import Iid, Partition
from testbed.errors import DataError


class DatasetConfig(BaseModel, ABC):
    """Base of every data set's options in a scenario; ``name`` selects the member.

    Attributes:
        partition: how the training samples are dealt to the workers.
        fraction: share of the training samples that is used, equally many of each label as far as
            they go; the test set stays whole.
        images: shape of an image and number of classes, where they are known beforehand.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    images: ClassVar[tuple[tuple[int, int, int], int] | None] = None

    partition: Partition = Iid(name="iid")
    fraction: Annotated[float, Field(gt=0, le=1, strict=True)] = 1.0

    @abstractmethod
    def prepare(self, cache: Path, *, environment: Mapping[str, str], folder: Path) -> Path:
        """Make the data set ready, unless that was done before. Two processes may do so at once.

        Args:
            cache: testbed's folder in the user's cache, see ``user_cache``.
            environment: of the process; ``TESTBED_DATA`` is read from it.
            folder: what the names of the user's own files are relative to.

        Returns:
            A folder that ``load`` understands, readable by everybody.

        Raises:
            DataError: a file is missing or damaged, or the cache cannot be written to.
            ScenarioError: the user's own file is wrong.
        """


def user_cache(environment: Mapping[str, str]) -> Path:
    """Testbed's folder in the user's cache: in ``$XDG_CACHE_HOME``, else in ``$HOME/.cache``.

    Raises:
        DataError: neither variable is set.
    """
    cache = environment.get("XDG_CACHE_HOME", "")
    if cache.startswith("/"):  # the XDG specification has relative ones ignored
        return Path(cache) / "testbed"
    if home := environment.get("HOME"):
        return Path(home) / ".cache" / "testbed"
    raise DataError(
        "There is no place for prepared data sets: neither XDG_CACHE_HOME nor HOME is set.",
        hint="Set XDG_CACHE_HOME to a folder.",
    )
