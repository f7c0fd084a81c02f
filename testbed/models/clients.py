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
from testbed.values.seeds import seed_globals


@dataclass(frozen=True, eq=False)
class ClientSamples:
    """The samples on which a worker evaluates the models that it pulls.

    Attributes:
        images: those that it holds out.
        labels: likewise.
        transform: the data set's transform.
        seconds: emulated time of an evaluation; None for as long as the host needs.
    """

    images: NDArray[Any]
    labels: NDArray[Any]
    transform: Transform | None = None
    seconds: float | None = None

    def accuracy(self, bound: BoundModel, draw: int) -> float:
        """Return the model's accuracy; a ``draw`` seeds the global generators."""
        if draw:
            seed_globals(draw)
        found = bound.evaluate(self.images, self.labels, transform=self.transform)
        return found.metrics[ACCURACY] or 0.0


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
