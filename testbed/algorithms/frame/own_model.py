"""The contract of a user's own model, as checks on real images or noise."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from testbed.algorithms.frame.actions import Step
from testbed.algorithms.frame.compute import batch_of
from testbed.algorithms.frame.contract import CheckResult, run_checks
from testbed.datasets import Prepared
from testbed.errors import UserCodeError
from testbed.models import BoundModel, ImageShape, Network
from testbed.models.base import Images, Targets
from testbed.models.cost import noise
from testbed.payloads import Vector

IMAGES = 6
STEP = 1e-2
TOLERANCE = 0.1
"""Relative tolerance of a slope measured in float32."""


@dataclass(frozen=True)
class ModelUnderTest:
    """A model and the data to check it on.

    Attributes:
        name: name of the class and its file.
        build: builds the network from scratch on each call.
        data: images and targets.
    """

    name: str
    build: Callable[[], Network]
    data: Prepared

    def bound(self) -> tuple[BoundModel, Vector]:
        """Build the network and its initial values; return both."""
        network = self.build()
        parts = (network.initial, network.initial_local)
        at = np.concatenate([initial(np.random.default_rng(0)) for initial in parts])
        return network.bind(at), at

    def batch(self, draw: int = 1) -> tuple[Images, Targets]:
        """Return images spread over the whole training set, as a training step gets them."""
        samples = np.linspace(0, len(self.data.train_labels) - 1, IMAGES).astype(np.int64)
        return batch_of(Step(samples, draw), self.data)


def noisy(image_shape: ImageShape, classes: int, *, tokens: int = 0) -> Prepared:
    """Draw random images and targets, for use without a data set."""
    images, targets = noise(image_shape, classes, count=IMAGES, tokens=tokens)
    return Prepared(images, targets, images, targets, classes, {})


def examine_model(subject: ModelUnderTest) -> Iterator[CheckResult]:
    """Check the whole contract of a model."""
    return run_checks((check_alike, check_repeats, check_slope, check_evaluation), subject)


def check_alike(subject: ModelUnderTest) -> None:
    """It has the same parameters in every process, and reproducible initial values."""
    one, other = subject.build(), subject.build()
    if one.layout != other.layout:
        raise UserCodeError(f"{subject.name}: two calls build different parameters.")
    first, second = (network.initial(np.random.default_rng(0)) for network in (one, other))
    if not np.array_equal(first, second):
        flaw = "its initial values are not all drawn from torch's global generator"
        raise UserCodeError(f"{subject.name}: {flaw}.")


def check_repeats(subject: ModelUnderTest) -> None:
    """Its gradient is reproducible, independent of previous computations and draws."""
    bound, _ = subject.bound()
    first, _, again = (_gradient(bound, subject, draw) for draw in (1, 2, 1))
    if not np.array_equal(first, again, equal_nan=True):
        flaw = "its gradient for the same step differs after another step was computed"
        cause = "it keeps state between batches, or draws from its own generator"
        hint = "Draw from torch's global generator, which is seeded for every step."
        raise UserCodeError(f"{subject.name}: {flaw}: {cause}. {hint}")


def check_slope(subject: ModelUnderTest) -> None:
    """Its gradient is finite, and that of the loss that is minimised."""
    bound, at = subject.bound()
    start, gradient = at.copy(), _gradient(bound, subject)
    for part in subject.build().worker_layout.untrained_slices:
        gradient[part] = 0.0
    norm = float(np.linalg.norm(gradient))
    if not 0 < norm < np.inf:
        raise UserCodeError(
            f"{subject.name}: the norm of the gradient is {norm:g}, expected a number above 0."
        )
    losses = []
    for way in (STEP, -STEP):
        at[:] = start + np.float32(way / norm) * gradient
        losses.append(_loss(bound, subject))
    slope = (losses[0] - losses[1]) / (2 * STEP)
    if abs(slope - norm) > TOLERANCE * norm:
        raise UserCodeError(
            f"{subject.name}: the slope of the loss in the direction of the model's gradient is "
            f"{slope:.4g}, expected the norm of that gradient, {norm:.4g}."
        )


def check_evaluation(subject: ModelUnderTest) -> None:
    """The loss of an evaluation is finite, and the same if the evaluation is repeated."""
    bound, _ = subject.bound()
    batch = subject.batch()
    one, other = (bound.evaluate(*batch) for _ in range(2))
    if not np.isfinite(one.loss) or one != other:
        raise UserCodeError(
            f"{subject.name}: two evaluations of the same images give the losses {one.loss:g} and "
            f"{other.loss:g}, expected the same result twice, with a finite loss."
        )


def _gradient(bound: BoundModel, subject: ModelUnderTest, draw: int = 1) -> Vector:
    return bound.loss_and_gradient(*subject.batch(draw))[1].copy()


def _loss(bound: BoundModel, subject: ModelUnderTest) -> float:
    return bound.loss_and_gradient(*subject.batch())[0]
