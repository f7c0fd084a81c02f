"""Errors of predicted numbers: absolute and squared, in the unit of the targets."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from testbed.models.metrics.base import Metric, MetricConfig, Outputs, Targets


class MeanAbsoluteError(MetricConfig):
    """Mean distance of a prediction from its number."""

    NAMES = "mae"
    LOWER_IS_BETTER = True
    TARGETS = "numbers"
    UNIT = ""

    name: Literal["mae"]

    @classmethod
    def title(cls, name: str) -> str:
        return "mean absolute error"

    def start(self, classes: int, *, folder: Path | None) -> Metric:
        return _Power(1)


class RootMeanSquaredError(MetricConfig):
    """Square root of the mean squared distance of a prediction from its number."""

    NAMES = "rmse"
    LOWER_IS_BETTER = True
    TARGETS = "numbers"
    UNIT = ""

    name: Literal["rmse"]

    @classmethod
    def title(cls, name: str) -> str:
        return "root mean squared error"

    def start(self, classes: int, *, folder: Path | None) -> Metric:
        return _Power(2)


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
