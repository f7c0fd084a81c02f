"""What simulated workers of a process share: data, network, and how gradients are computed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from math import nan
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from testbed.algorithms.frame.actions import Step
from testbed.algorithms.frame.compute import Gradient, OwnCompute, batch_of
from testbed.datasets import Prepared
from testbed.host.deadline import evaluated_within
from testbed.models import BoundModel, Evaluation
from testbed.models.base import GradientRequest
from testbed.models.clients import ClientSamples, HeldOut
from testbed.models.metrics.suite import MetricSuite
from testbed.payloads import Vector
from testbed.simulation.gradients import Gradients
from testbed.values.seeds import seed_globals

if TYPE_CHECKING:
    from testbed.models.batched import BatchedNetwork

Asked = tuple[Step, Vector]
"""A gradient that a worker asks for: its step, and the parameters, float32 (N,)."""


@dataclass
class Learner:
    """The data and the network that all workers of one process share.

    The network is bound to ``parameters``, float32 (N,); a worker's are copied there to compute.

    Attributes:
        gradients: gradients of other runs to reuse; None to disable.
        timeout_seconds: the real-time limit of an evaluation.
        evaluation_seed: seed of the global generators in an evaluation; None if unused.
        metrics: the metrics of an evaluation.
        held_out: the samples for an evaluation per client; None for none.
        sent: a vector and a network of it, for the parameter server's model; None if that is as a
            worker's.
        batched: computes several gradients at once; None to compute one by one.
        one_by_one: why, if the scenario asks for several.
    """

    data: Prepared
    parameters: Vector
    bound: BoundModel
    gradients: Gradients | None = None
    timeout_seconds: float = 600.0
    evaluation_seed: int | None = None
    metrics: MetricSuite = MetricSuite()  # noqa: RUF009 - frozen
    held_out: HeldOut | None = None
    sent: tuple[Vector, BoundModel] | None = None
    batched: BatchedNetwork | None = None
    one_by_one: str = ""

    @property
    def together(self) -> int:
        """Maximum number of gradients at once."""
        return 1 if self.batched is None else self.batched.count

    def gradients_at_once(self, asked: Sequence[Asked]) -> list[Gradient]:
        """Return 1 to ``together`` gradients."""
        if self.batched is None:
            return [self.gradient(*one) for one in asked]
        found: dict[int, Gradient] = {}
        requests = [GradientRequest(at, *batch_of(step, self.data)) for step, at in asked]
        shapes = [request.images.shape for request in requests]
        for shape in dict.fromkeys(shapes):
            places = [place for place, one in enumerate(shapes) if one == shape]
            computed = self.batched.gradients([requests[place] for place in places])
            for place, (loss, values) in zip(places, computed, strict=True):
                alone = len(places) == len(asked)  # another shape overwrites the values
                found[place] = Gradient(loss, values if alone else values.copy())
        return [found[place] for place in range(len(asked))]

    def gradient(self, step: Step, at: Vector) -> Gradient:
        """Return a gradient, computed or of another run; with those, the loss is NaN."""
        if self.gradients is None:
            return OwnCompute(self.data, self.parameters, self.bound).gradient(step, at)
        self.parameters[:] = at
        batch = batch_of(step, self.data)
        compute = partial(self.bound.loss_and_gradient, *batch)
        return Gradient(nan, self.gradients.gradient(at, *batch, lambda: compute()[1]))

    def accuracy(self, at: Vector, samples: ClientSamples, draw: int) -> float:
        """Return the accuracy of the parameters ``at`` on a worker's samples."""
        self.parameters[:] = at
        with evaluated_within(self.timeout_seconds):
            return samples.accuracy(self.bound, self.parameters, draw=draw)

    def evaluate(self, at: Vector, images: NDArray[np.int64] | None) -> Evaluation:
        """Evaluate the parameters ``at`` on some test images (indices), or on all."""
        parameters, bound = self.sent or (self.parameters, self.bound)
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
