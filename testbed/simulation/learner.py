"""What simulated workers of a process share: data, network, and how gradients are computed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from math import nan

import numpy as np
from numpy.typing import NDArray

from testbed.algorithms.frame.actions import Step
from testbed.algorithms.frame.compute import Gradient, OwnCompute, batch_of
from testbed.datasets import Prepared
from testbed.host.deadline import evaluated_within
from testbed.models import BoundModel, Evaluation
from testbed.models.clients import ClientSamples, HeldOut
from testbed.models.metrics.suite import MetricSuite
from testbed.payloads import Vector
from testbed.simulation.gradients import Gradients
from testbed.values.seeds import seed_globals

Asked = tuple[Step, Vector]
"""A gradient that a worker asks for: its step, and the parameters, float32 (N,)."""


@dataclass
class Learner:
    """The data and the network that all workers of one process share.

    Attributes:
        data: the data set.
        compute: computes gradients; a worker's parameters are copied to its own.
        gradients: gradients of other runs to reuse; None to disable.
        timeout_seconds: the real-time limit of an evaluation.
        evaluation_seed: seed of the global generators in an evaluation; None if unused.
        metrics: the metrics of an evaluation.
        held_out: the samples for an evaluation per client; None for none.
        sent: a vector and a network of it, for the parameter server's model; None if that is as a
            worker's.
    """

    data: Prepared
    compute: OwnCompute
    gradients: Gradients | None = None
    timeout_seconds: float = 600.0
    evaluation_seed: int | None = None
    metrics: MetricSuite = MetricSuite()  # noqa: RUF009 - frozen
    held_out: HeldOut | None = None
    sent: tuple[Vector, BoundModel] | None = None

    def gradients_at_once(self, asked: Sequence[Asked]) -> list[Gradient]:
        """Return the gradients of 1 to ``compute.together`` steps."""
        if self.compute.batched is None:
            return [self.gradient(*one) for one in asked]
        return self.compute.at_once([self.compute.request(*one) for one in asked])

    def gradient(self, step: Step, at: Vector) -> Gradient:
        """Return a gradient, computed or of another run; with those, the loss is NaN."""
        if self.gradients is None:
            return self.compute.gradient(step, at)
        self.compute.parameters[:] = at
        batch = batch_of(step, self.data)
        compute = partial(self.compute.bound.loss_and_gradient, *batch)
        return Gradient(nan, self.gradients.gradient(at, *batch, lambda: compute()[1]))

    def accuracy(self, at: Vector, samples: ClientSamples, draw: int) -> float:
        """Return the accuracy of the parameters ``at`` on a worker's samples."""
        self.compute.parameters[:] = at
        with evaluated_within(self.timeout_seconds):
            return samples.accuracy(self.compute.bound, self.compute.parameters, draw=draw)

    def evaluate(self, at: Vector, images: NDArray[np.int64] | None) -> Evaluation:
        """Evaluate the parameters ``at`` on some test images (indices), or on all."""
        parameters, bound = self.sent or (self.compute.parameters, self.compute.bound)
        parameters[:] = at[: parameters.size]
        data, chosen = self.data, slice(None) if images is None else images
        tested = data.test_images[chosen], data.test_labels[chosen]
        if self.evaluation_seed is not None:
            seed_globals(self.evaluation_seed)
        with evaluated_within(self.timeout_seconds):
            found = bound.evaluate(*tested, transform=data.transform, metrics=self.metrics)
            if self.held_out is None:
                return found
            return self.held_out.evaluate(bound, parameters, found, final=images is None)
