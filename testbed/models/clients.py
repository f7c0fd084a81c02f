"""Evaluation of a model per client, on the samples that each worker holds out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from testbed.models.base import BoundModel, Evaluation, Transform
from testbed.models.metrics import ACCURACY
from testbed.models.metrics.clients import distribution


@dataclass(frozen=True, eq=False)
class HeldOut:
    """The samples that the workers hold out.

    Attributes:
        images: all of the training set.
        labels: likewise.
        clients: the held-out samples of each worker, as indices into both.
        most: number of samples of a worker in an evaluation during the training.
    """

    images: NDArray[Any]
    labels: NDArray[Any]
    clients: Sequence[NDArray[np.int64]]
    most: int

    def evaluate(
        self, bound: BoundModel, measured: Evaluation, *, transform: Transform | None, final: bool
    ) -> Evaluation:
        """Add the values of the clients to an evaluation; a final one uses all their samples."""
        accuracies = []
        for own in self.clients:
            part = own if final else own[: self.most]
            found = bound.evaluate(self.images[part], self.labels[part], transform=transform)
            accuracies.append(found.metrics[ACCURACY] or 0.0)
        return replace(measured, metrics={**measured.metrics, **distribution(accuracies)})
