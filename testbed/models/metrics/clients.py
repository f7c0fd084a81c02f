"""How the accuracy differs among the clients: that of the model on each worker's held-out samples.

clients_mean        mean over the workers
clients_deviation   standard deviation over the workers; the lower, the fairer
clients_worst       mean of the tenth of the workers with the lowest accuracy, at least of one
clients_jain        Jain's index of fairness, (Σ a)² / (n Σ a²): 1 if all are equal, 1 / n if
                    all but one are 0
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np

from testbed.models.metrics.base import Metric, MetricConfig, Outputs, Targets
from testbed.values.fields import Count, PositiveNumber, Share, StrictModel

FORWARD = 0.33
"""A forward pass takes about half as long as the backward pass, which an evaluation omits."""

Evaluators = Literal["evaluator", "workers"]

VALUES = ("clients_mean", "clients_deviation", "clients_worst", "clients_jain")


class FineTune(StrictModel):
    """Training of the evaluated model on a worker's own samples: it becomes a personalised model.

    Attributes:
        epochs: passes over the samples that the worker does not hold out.
        learning_rate: of plain SGD in batches of `workers.batch_size`.
    """

    epochs: Count = 1
    learning_rate: PositiveNumber = 0.01


class Clients(MetricConfig):
    """Distribution over the workers of the accuracy on the samples that each holds out.

    It has four values: `clients_mean`, `clients_deviation`, `clients_worst` and `clients_jain`.

    Attributes:
        by: who evaluates. ``evaluator``: each evaluated model, without traffic or emulated time.
            ``workers``: each model that they pull, and send the accuracy with their next update; an
            evaluation then has the values of the last round.
        cost: time in which a worker evaluates a sample, as a share of that for training on it.
        fine_tune: how each worker's model is personalised before its evaluation; by default, the
            model is evaluated as it is. A worker's own time for it is that of as many training
            steps.
    """

    NAMES = "|".join(VALUES)
    SAMPLES = "held-out samples"

    name: Literal["clients"]
    by: Evaluators = "evaluator"
    cost: Share = FORWARD
    fine_tune: FineTune | None = None

    def names(self, classes: int) -> tuple[str, ...]:
        return VALUES

    def prefers_higher(self, name: str) -> bool:
        return name != "clients_deviation"

    @classmethod
    def title(cls, name: str) -> str:
        what = {"jain": "Jain's index", "worst": "worst tenth"}
        word = name.rpartition("_")[2]
        return f"clients' accuracy, {what.get(word, word)}"

    def start(self, classes: int, *, folder: Path | None) -> Metric:
        return _OfOtherSamples()


class _OfOtherSamples(Metric):
    """No values: the test images of an evaluation belong to no client."""

    def update(self, outputs: Outputs, targets: Targets) -> None:
        """Ignore them."""

    def values(self) -> tuple[None, ...]:
        return (None,) * len(VALUES)


def distribution(accuracies: Sequence[float]) -> dict[str, float]:
    """Return the values of the clients' accuracies, by name."""
    found = np.sort(np.array(accuracies, np.float64))
    squares = float(np.square(found).sum())
    values = (
        float(found.mean()),
        float(found.std()),
        float(found[: max(1, len(found) // 10)].mean()),
        float(found.sum()) ** 2 / (len(found) * squares) if squares else 1.0,
    )
    return dict(zip(VALUES, values, strict=True))
