"""Errors of predicted numbers: absolute and squared, in the unit of the targets."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np

from testbed.models.metrics.base import Metric, MetricConfig, Outputs, Targets


class _Distances(MetricConfig):
    LOWER_IS_BETTER = True
    TARGETS = "numbers"
    UNIT = ""
    POWER: ClassVar[int]

    def start(self, classes: int, *, folder: Path | None) -> Metric:
        return _Power(self.POWER)


class MeanAbsoluteError(_Distances):
    """Mean distance of a prediction from its number."""

    NAMES = "mae"
    TITLE = "mean absolute error"
    POWER = 1

    name: Literal["mae"]


class RootMeanSquaredError(_Distances):
    """Square root of the mean squared distance of a prediction from its number."""

    NAMES = "rmse"
    TITLE = "root mean squared error"
    POWER = 2

    name: Literal["rmse"]


@dataclass
class _Power(Metric):
    power: int
    total: float = 0.0
    images: int = 0

    def update(self, outputs: Outputs, targets: Targets) -> None:
        with np.errstate(over="ignore", invalid="ignore"):  # of a model that diverged
            distances = np.abs(outputs - targets)
            self.total += float((distances**self.power).sum())
        self.images += len(targets)

    def values(self) -> tuple[float]:
        return ((self.total / self.images) ** (1 / self.power),)
