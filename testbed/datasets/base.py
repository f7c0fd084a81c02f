"""The contract of a data set: prepared once by the process that starts a run, mapped by every node.

    config.prepare(cache, environment=..., folder=...) -> Path      a folder of .npy files
    load(path)                                         -> Prepared  in testbed/datasets/prepared.py

Images are float32 and ready for training; or raw, and ``config.make_ready`` returns a transform
that makes them ready, batch by batch: at random if desired, from a number drawn for every step.
A config class does not import modules that only preparation needs, so that a scenario can be read
without them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import Field

from testbed.datasets.partitions import Partition
from testbed.datasets.partitions.sizes import Iid
from testbed.datasets.prepared import Transform
from testbed.errors import DataError
from testbed.values.fields import Share, StrictModel
from testbed.values.samples import Inputs, Targets


class DatasetConfig(StrictModel, ABC):
    """Base of every data set's options in a scenario; ``name`` selects the data set.

    Attributes:
        partition: how the training samples are assigned to the workers.
        fraction: share of the training samples that is used, equally many of each label as far as
            possible; the test set stays whole.
        held_out: share of each worker's samples that it does not train on, for an evaluation per
            client (the metric ``clients``).
        images: shape of a sample and number of classes (0 for numbers), if known in advance.
        input_type: what a model gets; None if not known in advance.
        targets: what a model predicts; likewise.
        test_images: number of test images, if known in advance.
        substitute: the data that it replaces, if those are not available; shown with all its
            results.
    """

    images: ClassVar[tuple[tuple[int, ...], int] | None] = None
    input_type: ClassVar[Inputs | None] = "images"
    targets: ClassVar[Targets | None] = "labels"
    test_images: ClassVar[int | None] = None
    substitute: ClassVar[str] = ""

    partition: Partition = Iid(name="iid")
    fraction: Share = 1.0
    held_out: Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)] = 0.0

    @property
    def pixel_bytes(self) -> int:
        """Bytes of a training sample per pixel and colour: float32, unless they stay raw."""
        return 4

    @abstractmethod
    def prepare(self, cache: Path, *, environment: Mapping[str, str], folder: Path) -> Path:
        """Prepare the data set, unless it is already prepared. Safe for concurrent processes.

        Args:
            cache: testbed's folder in the user's cache, see ``user_cache``.
            environment: environment variables, such as ``TESTBED_DATA``.
            folder: base folder of relative names of the user's own files.

        Returns:
            A folder for ``load``, readable by all users.

        Raises:
            DataError: a file is missing or damaged, or the cache cannot be written to.
            ScenarioError: the user's own file is wrong.
        """

    def make_ready(self, folder: Path) -> Transform | None:
        """Return the transform that makes a batch of images ready; None if they are ready.

        Args:
            folder: the run folder; copies of the user's own files are in its ``custom``.

        Raises:
            ScenarioError: the user's own file is wrong.
        """
        return None


def user_cache(environment: Mapping[str, str]) -> Path:
    """Return testbed's folder in the user's cache: ``$XDG_CACHE_HOME``, else ``$HOME/.cache``.

    Raises:
        DataError: neither variable is set.
    """
    cache = environment.get("XDG_CACHE_HOME", "")
    if cache.startswith("/"):  # the XDG specification says to ignore relative paths
        return Path(cache) / "testbed"
    if home := environment.get("HOME"):
        return Path(home) / ".cache" / "testbed"
    raise DataError(
        "There is no folder for prepared data sets: neither XDG_CACHE_HOME nor HOME is set.",
        hint="Set XDG_CACHE_HOME to a folder.",
    )
