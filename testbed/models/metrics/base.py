"""The contract of a metric: a number, or several named ones, of a model's outputs and the targets.

    config.names(classes)         -> ("top3",)     the names of its values
    config.start(classes, folder) -> Metric        one evaluation
    metric.update(outputs, targets)                for each batch
    metric.values()               -> (0.97,)       None for a value that these images do not define

The names are the columns of a run's evaluations, and what `stop`, studies and exports refer to.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from testbed.values.fields import StrictModel

Outputs = NDArray[np.float64]
"""Scores before the softmax, shape (b, classes), or predicted numbers, shape (b,)."""

Targets = NDArray[Any]
"""Labels, int64, each in [0, classes), or numbers, float32; shape (b,)."""


class Metric(ABC):
    """A metric in one evaluation; accumulates over the batches."""

    @abstractmethod
    def update(self, outputs: Outputs, targets: Targets) -> None:
        """Add a batch."""

    @abstractmethod
    def values(self) -> Sequence[float | None]:
        """Return the values of all images so far, in the order of their names."""


class MetricConfig(StrictModel, ABC):
    """Base of every metric's options in a scenario; ``name`` selects the metric.

    Attributes:
        NAMES: a pattern of the names of its values.
        TITLE: its name in text; by default that of the value, with spaces.
        TARGETS: the targets that it compares outputs with; None for any.
        LOWER_IS_BETTER: whether a lower value is better.
        UNIT: the unit of its values: a share (of all images), or a number without unit.
        SAMPLES: what it is measured on.
        GROUP: the group of its values in trackers of experiments.
    """

    NAMES: ClassVar[str]
    TITLE: ClassVar[str] = ""
    TARGETS: ClassVar[Literal["labels", "numbers"] | None] = "labels"
    LOWER_IS_BETTER: ClassVar[bool] = False
    UNIT: ClassVar[Literal["images", "share", ""]] = "share"
    SAMPLES: ClassVar[str] = "test samples"
    GROUP: ClassVar[str] = "metrics"

    name: Any

    @property
    def higher_is_better(self) -> bool:
        """Whether a higher value is better."""
        return not self.LOWER_IS_BETTER

    def prefers_higher(self, name: str) -> bool:
        """Return whether a higher value of that name is better."""
        return self.higher_is_better

    def names(self, classes: int) -> tuple[str, ...]:
        """Return the names of its values; ``classes`` is 0 for numbers as targets."""
        return (str(self.name),)

    def has(self, name: str) -> bool:
        """Return whether it has a value of that name, with some number of classes."""
        return re.fullmatch(self.NAMES, name) is not None

    @classmethod
    def title(cls, name: str) -> str:
        """Return the value's name in text."""
        return cls.TITLE or name.replace("_", " ")

    @abstractmethod
    def start(self, classes: int, *, folder: Path | None) -> Metric:
        """Start an evaluation; ``folder`` is the run's, whose ``custom`` has the user's files."""
