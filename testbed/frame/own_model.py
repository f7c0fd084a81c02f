"""The contract of a user's own model, as checks on real images or noise."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from testbed.datasets import Prepared
from testbed.errors import UserCodeError
from testbed.frame.batch import batch_of
from testbed.frame.contract import Outcome, outcomes
from testbed.frame.worker import Step
from testbed.models import Bound, ImageShape, Network
from testbed.models.base import Images, Targets
from testbed.payloads import Vector

IMAGES = 6
STEP = 1e-2
TOLERANCE = 0.1
"""Relative tolerance of a slope measured in float32."""


@dataclass(frozen=True)
class Tried:
    """A model and the data to check it on.

    Attributes:
        name: name of the class and its file.
        build: builds the network from scratch on each call.
        data: images and targets.
    """

    name: str
    build: Callable[[], Network]
    data: Prepared

    def bound(self) -> tuple[Bound, Vector]:
        """Build the network and its initial values; return both."""
        network = self.build()
        at = network.initial(np.random.default_rng(0))
        return network.bind(at), at

    def batch(self, draw: int = 1) -> tuple[Images, Targets]:
        """Return images spread over the whole training set, as a training step gets them."""
        samples = np.linspace(0, len(self.data.train_labels) - 1, IMAGES).astype(np.int64)
        return batch_of(Step(samples, draw), self.data)


def noise(image_shape: ImageShape, classes: int) -> Prepared:
    """Draw random images and targets, for use without a data set."""
    rng = np.random.default_rng(0)
    images = rng.standard_normal((IMAGES, *image_shape)).astype(np.float32)
    numbers = rng.standard_normal(IMAGES).astype(np.float32)
    targets = rng.integers(0, classes, IMAGES) if classes else numbers
    return Prepared(images, targets, images, targets, classes, {})


def examine_model(tried: Tried) -> Iterator[Outcome]:
    """Check the whole contract of a model."""
    return outcomes((check_alike, check_repeats, check_slope, check_evaluation), tried)


def check_alike(tried: Tried) -> None:
    """It is built alike in every process, and starts from values that repeat."""
    one, other = tried.build(), tried.build()
    if one.layout != other.layout:
        raise UserCodeError(f"{tried.name}: its parameters differ from one call to the next.")
    first, second = (network.initial(np.random.default_rng(0)) for network in (one, other))
    if not np.array_equal(first, second):
        told = "draws its first values from something else than torch's generator"
        raise UserCodeError(f"{tried.name} {told}.")


def check_repeats(tried: Tried) -> None:
    """Its gradient repeats, whatever was computed and drawn before it."""
    bound, _ = tried.bound()
    first, _, again = (_gradient(bound, tried, draw) for draw in (1, 2, 1))
    if not np.array_equal(first, again, equal_nan=True):
        told = "computed again for the same step, after that of another, its gradient differs"
        kept = "it keeps something from batch to batch, or draws from a generator of its own"
        cure = "Draw from torch's global generator, which is seeded for every step."
        raise UserCodeError(f"{tried.name}: {told}: {kept}. {cure}")


def check_slope(tried: Tried) -> None:
    """Its gradient is finite, and the slope of the loss that is minimised."""
    bound, at = tried.bound()
    start, gradient = at.copy(), _gradient(bound, tried)
    norm = float(np.linalg.norm(gradient))
    if not 0 < norm < np.inf:
        raise UserCodeError(
            f"{tried.name}: the norm of its gradient is {norm:g}, expected above 0."
        )
    losses = []
    for way in (STEP, -STEP):
        at[:] = start + np.float32(way / norm) * gradient
        losses.append(_loss(bound, tried))
    slope = (losses[0] - losses[1]) / (2 * STEP)
    if abs(slope - norm) > TOLERANCE * norm:
        told = f"along its gradient the loss has a slope of {slope:.4g}, expected {norm:.4g}"
        raise UserCodeError(f"{tried.name}: {told}, as its gradient says.")


def check_evaluation(tried: Tried) -> None:
    """Its evaluation is finite and repeats."""
    bound, _ = tried.bound()
    batch = tried.batch()
    one, other = (bound.evaluate(*batch) for _ in range(2))
    if not np.isfinite(one.loss) or one != other:
        told = f"evaluated twice, the loss is {one.loss:g} and {other.loss:g}"
        raise UserCodeError(f"{tried.name}: {told}, expected the same finite number.")


def _gradient(bound: Bound, tried: Tried, draw: int = 1) -> Vector:
    return bound.loss_and_gradient(*tried.batch(draw))[1].copy()


def _loss(bound: Bound, tried: Tried) -> float:
    return bound.loss_and_gradient(*tried.batch())[0]
