"""The contract of a data set: prepared once by whoever starts a run, mapped by every node.

    config.prepare(cache, environment=..., folder=...) -> Path      a folder of .npy files
    load(path)                                         -> Prepared  in testbed/datasets/prepared.py

Images are float32 and ready to be trained on; or raw, and ``config.make_ready`` gives what makes
them so, batch by batch: at random where that is wanted, from a number that is drawn for every step.
A config class imports nothing that only preparing
needs, so that a scenario can be read without it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from testbed.datasets.partition import Iid, Partition
from testbed.datasets.prepared import Transform
from testbed.errors import DataError
from testbed.values.fields import Part, Share


class DatasetConfig(Part, ABC):
    """Base of every data set's options in a scenario; ``name`` selects the member.

    Attributes:
        partition: how the training samples are dealt to the workers.
        fraction: share of the training samples that is used, equally many of each label as far as
            they go; the test set stays whole.
        images: shape of an image and number of classes (0 for numbers), where they are known
            beforehand.
        test_images: how many it is tested on, where that is known beforehand.
        substitute: what it stands for, where it takes the place of data that cannot be had; told
            with everything that comes of it.
    """

    images: ClassVar[tuple[tuple[int, int, int], int] | None] = None
    test_images: ClassVar[int | None] = None
    substitute: ClassVar[str] = ""

    partition: Partition = Iid(name="iid")
    fraction: Share = 1.0

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

    def make_ready(self, folder: Path) -> Transform | None:
        """What makes a batch of images ready; None where they are.

        Args:
            folder: the run's; the user's own files lie in its ``custom``.

        Raises:
            ScenarioError: the user's own file is wrong.
        """
        return None


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
