"""The contract of a model: a network whose parameters are one flat float32 vector.

    config.build(image_shape, classes, folder=...) -> Network    what is trained, without values
    network.initial(rng)                           -> Vector     first values, drawn from ``rng``
    network.bind(parameters)                       -> Bound      computes at those values

What is minimised is the cross-entropy of labels, unless a network has another objective, and the
penalty that it may have. The targets of a data set are labels, or numbers: then ``classes`` is 0.

A bound network reads ``parameters`` in place: whoever owns the vector changes it between two calls
and nothing is copied. Several may live in one process. Nothing here chooses a number of threads.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar, Literal, cast

import numpy as np
from numpy.typing import NDArray

from testbed.errors import ScenarioError
from testbed.payloads import Vector
from testbed.payloads.layout import Layout
from testbed.values.fields import Part

ImageShape = tuple[int, int, int]
"""Channels, height, width."""

Images = NDArray[np.float32]
Labels = NDArray[np.int64]
Targets = Labels | NDArray[np.float32]
"""Labels, each in [0, classes), or numbers; shape (b,)."""

Transform = Callable[[NDArray[Any], np.random.Generator | None], Images]
"""A data set's: raw images to ready ones, at random, or without a generator as they are tested."""

EVALUATION_BATCH = 50
"""Images evaluated at once: more need more memory and, out of the caches, more time for each."""


@dataclass(frozen=True)
class Evaluation:
    """How good a model is on so many images.

    Attributes:
        loss: what is minimised: the mean over the images and the model's penalty.
        top1: share of images whose label has the highest score; None where targets are numbers.
        top5: share of images whose label is among the five highest scores; None likewise.
    """

    loss: float
    top1: float | None
    top5: float | None
    images: int


class Bound(ABC):
    """A network that computes at the values of one parameter vector.

    Attributes:
        mixes: whether what it makes of an image may depend on the others of the batch, as with
            batch normalisation.
    """

    mixes: bool = False

    @abstractmethod
    def loss_and_gradient(self, images: Images, targets: Targets) -> tuple[float, Vector]:
        """The mean loss of a mini-batch and the penalty, and the gradient of their sum.

        Images have the shape (b, channels, height, width), targets (b,). The gradient, shape (N,),
        is in a buffer that the next call overwrites.
        """

    @abstractmethod
    def scores(self, images: Images) -> NDArray[np.float32]:
        """The network's outputs: scores before the softmax, shape (b, classes), or predictions."""

    def penalty(self) -> float:
        """What is minimised beside the loss of the images, such as a norm of the weights."""
        return 0.0

    def total_loss(self, outputs: NDArray[np.float64], targets: Targets) -> float:
        """The sum of the losses of some images, of which these are the outputs."""
        return cross_entropy(outputs, cast(Labels, targets))

    def evaluate(
        self, images: NDArray[Any], targets: Targets, *, transform: Transform | None = None
    ) -> Evaluation:
        """Loss and accuracy on any number of images, at most ``EVALUATION_BATCH`` at a time.

        Equal scores are ranked by class, lower first, and a score that is not a number is wrong, so
        that a model that diverged, or gives every class the same, is not counted as right.

        Where the network mixes images, the batches do not depend on the order of the images: in a
        test set that is sorted by class, the statistics of a batch would be those of one class.

        Args:
            images: ready to be trained on, or raw if there is a transform that makes them so.
            targets: labels, or numbers.
            transform: the data set's.
        """
        loss, count = 0.0, len(images)
        ranks: list[NDArray[np.int64]] = []
        batches = -(-count // EVALUATION_BATCH)
        order = _order_by_content(images, targets) if self.mixes else None
        for i in range(batches):  # of equal size, so that no batch statistics are of one image
            places = slice(i * count // batches, (i + 1) * count // batches)
            part = places if order is None else order[places]
            batch = images[part] if transform is None else transform(images[part], None)
            outputs = self.scores(batch).astype(np.float64)
            loss += self.total_loss(outputs, targets[part])
            if targets.dtype.kind == "i":
                ranks.append(_ranks(outputs, cast(Labels, targets[part])))
        loss = loss / count + self.penalty()
        if not ranks:
            return Evaluation(loss, top1=None, top5=None, images=count)
        first, fifth = (np.count_nonzero(np.concatenate(ranks) < n) / count for n in (1, 5))
        return Evaluation(loss, top1=first, top5=fifth, images=count)


class Network(ABC):
    """A network without values, but with the layout of the flat vector that holds them.

    Attributes:
        least_samples: how many samples a batch needs at least.
    """

    layout: Layout
    least_samples: int = 1

    @abstractmethod
    def initial(self, rng: np.random.Generator) -> Vector:
        """Parameters to start from, shape (N,); the same for the same state of ``rng``."""

    @abstractmethod
    def bind(self, parameters: Vector, *, device: str | None = None) -> Bound:
        """The network at ``parameters``, float32 (N,), contiguous and writable; not copied.

        On a device of torch's, such as ``cuda``, every call computes with a copy of what they are
        then, and brings the gradient back.
        """


class ModelConfig(Part, ABC):
    """Base of every model's options in a scenario; ``name`` selects the member.

    Attributes:
        predicts: ``labels`` or ``numbers``: which targets it is made for; None for any.
        substitute: what it stands for, where it takes the place of a model that cannot be had;
            told with everything that comes of it.
    """

    predicts: ClassVar[Literal["labels", "numbers"] | None] = "labels"
    substitute: ClassVar[str] = ""

    @abstractmethod
    def build(self, image_shape: ImageShape, classes: int, *, folder: Path) -> Network:
        """The network for images of this shape; the user's files lie in the folder's ``custom``.

        ``classes`` is 0 where targets are numbers.

        Raises:
            ScenarioError: this model cannot be built for such images, or the user's file is wrong.
        """

    def parameters(self, image_shape: ImageShape, classes: int) -> int | None:
        """How many parameters the network will have, told without torch; None if nobody can."""
        return None


def convolution(inputs: int, outputs: int, *, side: int = 3) -> int:
    """Parameters of a convolution with biases, whose filters have so many pixels on a side."""
    return (side**2 * inputs + 1) * outputs


def dense(*widths: int) -> int:
    """Parameters of dense layers with biases, from one width to the next."""
    return sum((inputs + 1) * outputs for inputs, outputs in pairwise(widths))


def pooled(image_shape: ImageShape, times: int, *, model: str) -> tuple[int, int]:
    """Height and width after halving (rounding down) ``times`` times.

    Raises:
        ScenarioError: nothing of the image is left.
    """
    _, height, width = image_shape
    height, width = height >> times, width >> times
    if not height or not width:
        found = f"{model} on images of {image_shape[1]}x{image_shape[2]} pixels"
        expected = f"at least {1 << times}x{1 << times} pixels, or a model such as mlp"
        raise ScenarioError.at("model", found, expected)
    return height, width


def _order_by_content(images: NDArray[Any], targets: Targets) -> NDArray[np.int64]:
    """A mixed order of images that does not depend on the one they are in, shape (b,).

    It is that of hashes of image and target; equal ones are numbered, so that they are spread too.
    """
    numbers: Counter[bytes] = Counter()
    hashes = []
    for image, target in zip(images, targets, strict=True):
        content = blake2b(image.tobytes() + target.tobytes()).digest()
        hashes.append(blake2b(content + numbers[content].to_bytes(8)).digest())
        numbers[content] += 1
    return np.array(sorted(range(len(hashes)), key=hashes.__getitem__), np.int64)


def _ranks(scores: NDArray[np.float64], labels: Labels) -> NDArray[np.int64]:
    """How many classes come before each image's own, shape (b,)."""
    own = np.take_along_axis(scores, labels[:, None], axis=1)
    better = ~(scores <= own)  # true also where either is not a number
    before = np.arange(scores.shape[1]) < labels[:, None]
    ranks: NDArray[np.int64] = np.sum(better | ((scores == own) & before), axis=1)
    return ranks


def cross_entropy(scores: NDArray[np.float64], labels: Labels) -> float:
    """Sum over the images of -log softmax(scores)[label]; NaN where a score is not finite."""
    highest = scores.max(axis=1, keepdims=True)
    own = np.take_along_axis(scores, labels[:, None], axis=1)
    with np.errstate(invalid="ignore"):  # infinite scores of a model that diverged
        sums = np.exp(scores - highest).sum(axis=1, keepdims=True)
    return float((np.log(sums) + highest - own).sum())
