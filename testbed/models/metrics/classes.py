"""Metrics from counts per class: the accuracy of each class, and the macro F1 score.

The predicted class is the one with the highest score, of equal ones the lowest. Scores with a NaN
predict no class.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from testbed.models.metrics.base import Metric, MetricConfig, Outputs, Targets


class AccuracyPerClass(MetricConfig):
    """Share of the images of each label that are predicted right: `accuracy_0`, `accuracy_1` ..."""

    NAMES = r"accuracy_(0|[1-9][0-9]{0,5})"

    name: Literal["accuracy_per_class"]

    def names(self, classes: int) -> tuple[str, ...]:
        return tuple(f"accuracy_{label}" for label in range(classes))

    @classmethod
    def title(cls, name: str) -> str:
        return f"accuracy of label {name.rpartition('_')[2]}"

    def start(self, classes: int, *, folder: Path | None) -> Metric:
        return _Accuracies.of(classes)


class MacroF1(MetricConfig):
    """Mean over the labels of 2 TP / (2 TP + FP + FN); of labels in the images or predictions."""

    NAMES = "macro_f1"
    TITLE = "macro F1"

    name: Literal["macro_f1"]

    def start(self, classes: int, *, folder: Path | None) -> Metric:
        return _MacroF1.of(classes)


@dataclass
class _Counts(Metric):
    """Counts by class, shape (classes,): images, predictions, and right predictions."""

    images: NDArray[np.int64]
    predicted: NDArray[np.int64]
    right: NDArray[np.int64]

    @classmethod
    def of(cls, classes: int) -> _Counts:
        return cls(*(np.zeros(classes, np.int64) for _ in range(3)))

    def update(self, outputs: Outputs, targets: Targets) -> None:
        classes, known = len(self.images), ~np.isnan(outputs).any(axis=1)
        predictions = outputs[known].argmax(axis=1)
        right = predictions[predictions == targets[known]]
        self.images += np.bincount(targets, minlength=classes)
        self.predicted += np.bincount(predictions, minlength=classes)
        self.right += np.bincount(right, minlength=classes)


class _Accuracies(_Counts):
    def values(self) -> list[float | None]:
        counts = zip(self.right.tolist(), self.images.tolist(), strict=True)
        return [right / images if images else None for right, images in counts]


class _MacroF1(_Counts):
    def values(self) -> tuple[float]:
        both = self.images + self.predicted
        there = both > 0
        return (float(np.mean(2 * self.right[there] / both[there])),)
