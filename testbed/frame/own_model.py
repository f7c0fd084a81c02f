"""What a model of the user's own promises, as checks that try it on images, real or of noise."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from testbed.datasets import Prepared
from testbed.errors import UserCodeError
from testbed.frame.contract import Outcome, outcomes
from testbed.models import Bound, ImageShape, Network
from testbed.models.base import Images, Targets
from testbed.payloads import Vector

IMAGES = 6
STEP = 1e-2
TOLERANCE = 0.1
"""Of a slope that is measured in float32, relative to it."""


@dataclass(frozen=True)
class Tried:
    """A model, and what it is tried on.

    Attributes:
        name: of the class and its file.
        build: makes the network, anew at every call.
        images: ready, shape (b, channels, height, width).
        targets: labels or numbers, shape (b,).
    """

    name: str
    build: Callable[[], Network]
    images: Images
    targets: Targets

    def bound(self) -> tuple[Bound, Vector]:
        """The network at values it may start from, and these."""
        network = self.build()
        at = network.initial(np.random.default_rng(0))
        return network.bind(at), at


def noise(image_shape: ImageShape, classes: int) -> tuple[Images, Targets]:
    """Images and targets drawn at random, where there are no data at hand."""
    rng = np.random.default_rng(0)
    images = rng.standard_normal((IMAGES, *image_shape)).astype(np.float32)
    if classes:
        return images, rng.integers(0, classes, IMAGES)
    return images, rng.standard_normal(IMAGES).astype(np.float32)


def some_of(data: Prepared) -> tuple[Images, Targets]:
    """Images of the training set from its beginning to its end, ready, and their targets."""
    return data.batch(np.linspace(0, len(data.train_labels) - 1, IMAGES).astype(np.int64))


def examine_model(tried: Tried) -> Iterator[Outcome]:
    """Check everything that a model promises."""
    return outcomes((check_alike, check_slope, check_evaluation), tried)


def check_alike(tried: Tried) -> None:
    """It is built alike in every process, and starts from values that repeat."""
    one, other = tried.build(), tried.build()
    if one.layout != other.layout:
        raise UserCodeError(f"{tried.name}: its parameters differ from one call to the next.")
    first, second = (network.initial(np.random.default_rng(0)) for network in (one, other))
    if not np.array_equal(first, second):
        told = "draws its first values from something else than torch's generator"
        raise UserCodeError(f"{tried.name} {told}.")


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
    one, other = (bound.evaluate(tried.images, tried.targets) for _ in range(2))
    if not np.isfinite(one.loss) or one != other:
        told = f"evaluated twice, the loss is {one.loss:g} and {other.loss:g}"
        raise UserCodeError(f"{tried.name}: {told}, expected the same finite number.")


def _gradient(bound: Bound, tried: Tried) -> Vector:
    _seed()
    return bound.loss_and_gradient(tried.images, tried.targets)[1].copy()


def _loss(bound: Bound, tried: Tried) -> float:
    _seed()
    return bound.loss_and_gradient(tried.images, tried.targets)[0]


def _seed() -> None:
    """So that dropout leaves out the same."""
    import torch

    torch.manual_seed(0)
