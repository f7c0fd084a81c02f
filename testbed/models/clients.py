"""Evaluation of a model per client, on the samples that each worker holds out.

A model may be personalised first: each worker trains it on its own samples, and evaluates the
result, which is then discarded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from testbed.models.base import BoundModel, Evaluation, Transform
from testbed.models.metrics import ACCURACY
from testbed.models.metrics.clients import distribution
from testbed.payloads import Vector
from testbed.values.seeds import seed_globals


@dataclass(frozen=True, eq=False)
class FineTuning:
    """Local SGD that personalises a model before its evaluation.

    Attributes:
        batches: the worker's training samples, as indices, in the order in which they are used.
        learning_rate: of plain SGD.
        untrained: parts of the parameters that are buffers, whose gradient is their change.
    """

    batches: Sequence[NDArray[np.int64]]
    learning_rate: float
    untrained: Sequence[slice] = ()

    def step(self, parameters: Vector, gradient: Vector) -> None:
        """Apply a gradient."""
        step = np.float32(self.learning_rate) * gradient
        for part in self.untrained:
            step[part] = gradient[part]
        with np.errstate(over="ignore", invalid="ignore"):  # a model that diverges has a bad result
            parameters -= step


def draw_batches(
    samples: NDArray[np.int64], batch_size: int, epochs: int, *, rng: np.random.Generator
) -> list[NDArray[np.int64]]:
    """Return the batches of some epochs, each in an order of its own, none smaller than asked."""
    count = max(1, len(samples) // batch_size)
    orders = (rng.permutation(samples) for _ in range(epochs))
    return [batch for order in orders for batch in np.array_split(order, count)]


@dataclass(frozen=True, eq=False)
class ClientSamples:
    """The samples of one worker for the evaluation of a model.

    Attributes:
        images: the whole training set.
        labels: likewise.
        held: those that the worker holds out, as indices into both.
        transform: the data set's transform.
        seconds: emulated time of an evaluation; None for as long as the host needs.
        fine_tuning: how the model is personalised before; None for the model as it is.
    """

    images: NDArray[Any]
    labels: NDArray[Any]
    held: NDArray[np.int64]
    transform: Transform | None = None
    seconds: float | None = None
    fine_tuning: FineTuning | None = None

    def accuracy(
        self, bound: BoundModel, parameters: Vector, *, draw: int = 0, most: int | None = None
    ) -> float:
        """Return the model's accuracy on the held-out samples, or on ``most`` of them.

        Those are spread evenly: a data set may be sorted by label.

        Args:
            bound: the model.
            parameters: what it is bound to; unchanged afterwards.
            draw: seeds the global generators, unless 0.
            most: maximum number of samples.
        """
        if draw:
            seed_globals(draw)
        count = len(self.held) if most is None else min(most, len(self.held))
        own = self.held[np.linspace(0, len(self.held) - 1, count).astype(np.int64)]
        with self._personalised(bound, parameters):
            found = bound.evaluate(self.images[own], self.labels[own], transform=self.transform)
        return found.metrics[ACCURACY] or 0.0

    @contextmanager
    def _personalised(self, bound: BoundModel, parameters: Vector) -> Iterator[None]:
        if self.fine_tuning is None:
            yield
            return
        model = parameters.copy()
        try:
            for batch in self.fine_tuning.batches:
                images = self.images[batch]
                if self.transform is not None:
                    images = self.transform(images, None)
                _, gradient = bound.loss_and_gradient(images, self.labels[batch])
                self.fine_tuning.step(parameters, gradient)
            yield
        finally:
            parameters[:] = model


@dataclass(frozen=True, eq=False)
class HeldOut:
    """The samples that all workers hold out.

    Attributes:
        clients: those of each worker.
        most: number of samples of a worker in an evaluation during the training.
    """

    clients: Sequence[ClientSamples]
    most: int

    def evaluate(
        self, bound: BoundModel, parameters: Vector, measured: Evaluation, *, final: bool
    ) -> Evaluation:
        """Add the values of the clients to an evaluation; a final one uses all their samples."""
        most = None if final else self.most
        accuracies = [client.accuracy(bound, parameters, most=most) for client in self.clients]
        return replace(measured, metrics={**measured.metrics, **distribution(accuracies)})
