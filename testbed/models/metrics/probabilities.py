"""Metrics of predicted probabilities, the softmax of the scores; undefined if one is not finite."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import exp, inf
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from testbed.models.metrics.base import Metric, MetricConfig, Outputs, Targets
from testbed.models.scores import Labels, cross_entropy


class Auroc(MetricConfig):
    """Area under the ROC curve of each label against all others, mean of the labels that occur."""

    NAMES = "auroc"
    TITLE = "AUROC"

    name: Literal["auroc"]

    def start(self, classes: int, *, folder: Path | None) -> Metric:
        return _Auroc()


class CalibrationError(MetricConfig):
    """Expected calibration error: the mean distance of confidence and accuracy, in equal bins.

    Attributes:
        bins: number of bins of the confidence, the highest probability of an image.
    """

    NAMES = "calibration_error"
    LOWER_IS_BETTER = True

    name: Literal["calibration_error"]
    bins: Annotated[int, Field(ge=1, le=1000, strict=True)] = 15

    def start(self, classes: int, *, folder: Path | None) -> Metric:
        return _Calibration(np.zeros(self.bins), np.zeros(self.bins))


class Perplexity(MetricConfig):
    """The exponential of the mean cross-entropy, in nats."""

    NAMES = "perplexity"
    LOWER_IS_BETTER = True
    UNIT = ""

    name: Literal["perplexity"]

    def start(self, classes: int, *, folder: Path | None) -> Metric:
        return _Perplexity()


def softmax(scores: Outputs) -> Outputs:
    """Return the probabilities of the classes, shape (b, classes); NaN if a score is not finite."""
    with np.errstate(invalid="ignore"):
        powers = np.exp(scores - scores.max(axis=1, keepdims=True))
        probabilities: Outputs = powers / powers.sum(axis=1, keepdims=True)
    return probabilities


@dataclass
class _Auroc(Metric):
    """Keeps all probabilities: the area depends on their order over all images."""

    probabilities: list[Outputs] = field(default_factory=list)
    labels: list[Labels] = field(default_factory=list)

    def update(self, outputs: Outputs, targets: Targets) -> None:
        self.probabilities.append(softmax(outputs))
        self.labels.append(targets)

    def values(self) -> tuple[float | None]:
        probabilities, labels = np.concatenate(self.probabilities), np.concatenate(self.labels)
        if not np.isfinite(probabilities).all():
            return (None,)
        areas = [
            _area(probabilities[:, label], labels == label)
            for label in np.unique(labels)
            if not (labels == label).all()
        ]
        return (float(np.mean(areas)) if areas else None,)


def _area(scores: NDArray[np.float64], positive: NDArray[np.bool_]) -> float:
    """Return the share of pairs whose positive has the higher score; equal ones count a half."""
    _, place, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (counts.cumsum() - (counts - 1) / 2)[place]  # from 1; the mean rank of equal scores
    of, others = int(positive.sum()), int((~positive).sum())
    return float((ranks[positive].sum() - of * (of + 1) / 2) / (of * others))


@dataclass
class _Calibration(Metric):
    confidence: NDArray[np.float64]  # sums by bin
    right: NDArray[np.float64]
    images: int = 0

    def update(self, outputs: Outputs, targets: Targets) -> None:
        probabilities = softmax(outputs)
        confidence = probabilities.max(axis=1)
        bins = len(self.right)
        if np.isfinite(confidence).all():
            places = np.ceil(confidence * bins).astype(np.int64) - 1  # (0, 1/bins], ...
            places = places.clip(0, bins - 1)
            right = probabilities.argmax(axis=1) == targets
            self.confidence += np.bincount(places, confidence, minlength=bins)
            self.right += np.bincount(places, right, minlength=bins)
        else:
            self.confidence += inf
        self.images += len(targets)

    def values(self) -> tuple[float]:
        return (float(np.abs(self.confidence - self.right).sum()) / self.images,)


@dataclass
class _Perplexity(Metric):
    loss: float = 0.0
    images: int = 0

    def update(self, outputs: Outputs, targets: Targets) -> None:
        self.loss += cross_entropy(outputs, targets)
        self.images += len(targets)

    def values(self) -> tuple[float]:
        mean = self.loss / self.images
        return (exp(mean) if mean < 700 else inf,)
