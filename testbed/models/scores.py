"""Functions of scores and labels that the objective and the metrics share."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from testbed.values.samples import NOT_COUNTED

Labels = NDArray[np.int64]


def cross_entropy(scores: NDArray[np.float64], labels: Labels) -> float:
    """Return the sum over images of -log softmax(scores)[label]; NaN if a score is not finite."""
    highest = scores.max(axis=1, keepdims=True)
    own = np.take_along_axis(scores, labels[:, None], axis=1)
    with np.errstate(invalid="ignore"):  # infinite scores of a model that diverged
        sums = np.exp(scores - highest).sum(axis=1, keepdims=True)
    return float((np.log(sums) + highest - own).sum())


def counted(
    outputs: NDArray[np.float64], targets: NDArray[Any]
) -> tuple[NDArray[np.float64], NDArray[Any]]:
    """Return the outputs (m, classes) and targets (m,) of the tokens that count.

    Those of labels and numbers, one for each image, are returned as they are.
    """
    if targets.ndim < 2:
        return outputs, targets
    counts = targets != NOT_COUNTED
    return outputs[counts], targets[counts]


def ranks(scores: NDArray[np.float64], labels: Labels) -> NDArray[np.int64]:
    """Return how many classes rank before each image's own, shape (b,).

    Equal scores are ranked by class, lower first, and a NaN score counts as wrong, so that a model
    that diverged, or scores all classes equally, does not count as right.
    """
    own = np.take_along_axis(scores, labels[:, None], axis=1)
    better = ~(scores <= own)  # also true if either is NaN
    before = np.arange(scores.shape[1]) < labels[:, None]
    found: NDArray[np.int64] = np.sum(better | ((scores == own) & before), axis=1)
    return found
