"""The contract of a model: a network whose parameters are one flat float32 vector.

    config.build(image_shape, classes, folder=...) -> Network    the network, without values
    network.initial(rng)                           -> Vector     initial values, drawn from ``rng``
    network.bind(parameters)                       -> BoundModel      computes at these values

The objective is the cross-entropy of labels, unless a network defines another one, plus an
optional penalty. The targets of a data set are labels, or numbers: then ``classes`` is 0. Or they
are tokens, one for each position of a sample: then the objective is the mean cross-entropy over the
positions that count, and the metrics see each of these as they see an image.

A bound network reads ``parameters`` in place: the owner of the vector changes it between calls,
without copies. A process may have several. This package does not set the number of threads.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Self, cast

import numpy as np
from numpy.typing import NDArray

from testbed.errors import ScenarioError
from testbed.models.metrics.suite import MetricSuite
from testbed.models.scores import Labels, counted, cross_entropy
from testbed.payloads import Vector, zeros
from testbed.payloads.layout import Layout
from testbed.values.fields import StrictModel
from testbed.values.samples import Inputs
from testbed.values.samples import Targets as Kind

if TYPE_CHECKING:
    from torch import Tensor

ImageShape = tuple[int, ...]
"""Channels, height, width; or the length of a row of tokens."""

Buffers = Literal["dropped", "averaged", "local", "fedbn"]
"""What becomes of buffers that training changes, in a user's own model."""

AT_WORKERS: tuple[Buffers, ...] = ("local", "fedbn")
"""Those with which workers keep a part of the model."""

Images = NDArray[np.float32] | NDArray[np.int32]
Targets = Labels | NDArray[np.float32]
"""Labels, each in [0, classes), or numbers; shape (b,). Or tokens, shape (b, length), each in
[0, classes) or NOT_COUNTED."""

Transform = Callable[[NDArray[Any], np.random.Generator | None], Images]
"""A data set's transform of raw images: random, or deterministic without a generator."""

Loss = Callable[["Tensor", "Tensor", "Tensor"], "Tensor"]
"""The mean loss of a mini-batch plus the penalty, of parameters (N,), images and targets."""

EVALUATION_BATCH = 50
"""Images evaluated at once: more need more memory and, outside the caches, more time each."""


@dataclass(frozen=True)
class Evaluation:
    """The quality of a model on ``images`` images.

    Attributes:
        loss: the objective: the mean over the images plus the model's penalty.
        metrics: values by name, in order; None for those that these images do not define.
    """

    loss: float
    metrics: Mapping[str, float | None]
    images: int

    def written(self) -> dict[str, float | None]:
        """Return the content of a file: the metrics stand beside the loss."""
        return {"loss": self.loss, **self.metrics, "images": self.images}

    @classmethod
    def read(cls, written: Mapping[str, Any]) -> Self:
        """Return the evaluation with this content of a file."""
        metrics = {one: written[one] for one in written if one not in ("loss", "images")}
        return cls(written["loss"], metrics, written["images"])


class GradientRequest(NamedTuple):
    """Parameters, float32 (N,), and the batch for which their gradient is to be computed."""

    parameters: Vector
    images: Images
    targets: Targets


class BoundModel(ABC):
    """A network that computes at the values of one parameter vector.

    Attributes:
        mixes: whether the output for an image may depend on the other images of the batch, as with
            batch normalisation.
    """

    mixes: bool = False

    @abstractmethod
    def loss_and_gradient(self, images: Images, targets: Targets) -> tuple[float, Vector]:
        """Return the mean loss of a mini-batch plus the penalty, and the gradient of the sum.

        Images have the shape (b, channels, height, width), or (b, length), and targets (b,), or
        (b, length). The gradient, shape (N,), is in a buffer that the next call overwrites.
        """

    @abstractmethod
    def scores(self, images: Images) -> NDArray[np.float32]:
        """Return the outputs: scores before the softmax, shape (b, classes), or predictions.

        With tokens as targets the shape is (b, length, classes).
        """

    def penalty(self) -> float:
        """Return the penalty added to the loss of the images, such as a norm of the weights."""
        return 0.0

    def total_loss(self, outputs: NDArray[np.float64], targets: Targets) -> float:
        """Return the sum of the losses of some images, or tokens, given their outputs."""
        return cross_entropy(*counted(outputs, cast(Labels, targets)))

    def evaluate(
        self,
        images: NDArray[Any],
        targets: Targets,
        *,
        transform: Transform | None = None,
        metrics: MetricSuite = MetricSuite(),  # noqa: B008 - frozen
    ) -> Evaluation:
        """Return loss and metrics on any number of images, ``EVALUATION_BATCH`` at a time at most.

        If the network mixes images, the batches do not depend on the order of the images: in a test
        set sorted by class, the statistics of a batch would otherwise be those of one class.

        Args:
            images: ready for training, or raw if there is a transform.
            targets: labels, or numbers.
            transform: the data set's transform.
            metrics: the metrics; by default those of a scenario that names none.
        """
        loss, count, running, total = 0.0, len(images), None, 0
        batches = -(-count // EVALUATION_BATCH)
        order = _order_by_content(images, targets) if self.mixes else None
        for i in range(batches):  # of equal size, so that no batch has only one image
            places = slice(i * count // batches, (i + 1) * count // batches)
            part = places if order is None else order[places]
            batch = images[part] if transform is None else transform(images[part], None)
            outputs = self.scores(batch).astype(np.float64)
            loss += self.total_loss(outputs, targets[part])
            outputs, of_outputs = counted(outputs, targets[part])
            total += len(of_outputs)
            if running is None:
                running = metrics.start(outputs.shape[1] if targets.dtype.kind == "i" else 0)
            running.update(outputs, of_outputs)
        values = {} if running is None else running.values()
        return Evaluation(loss / total + self.penalty(), values, images=count)


class Network(ABC):
    """A network without values, with the layout of the flat vector for them.

    Attributes:
        least_samples: minimum number of samples per batch.
        tokens: number of tokens that it predicts for a sample; 0 if one label or number.
        local: the layout of what workers keep and do not send, such as running statistics.
    """

    layout: Layout
    local: Layout = Layout((), ())
    least_samples: int = 1
    tokens: int = 0

    @abstractmethod
    def initial(self, rng: np.random.Generator) -> Vector:
        """Return initial parameters, shape (N,); the same for the same state of ``rng``."""

    def initial_local(self, rng: np.random.Generator) -> Vector:
        """Return the initial values of ``local``, given the same state of ``rng``."""
        return zeros(0)

    @property
    def worker_layout(self) -> Layout:
        """The layout of a worker's vector: what it receives, then what it keeps."""
        return self.layout.followed_by(self.local)

    @abstractmethod
    def bind(self, parameters: Vector, *, device: str | None = None) -> BoundModel:
        """Bind the network to ``parameters``, float32 (N,), contiguous and writable; not copied.

        The vector is a worker's, or the model that is sent: then, normalisation layers use the
        statistics of the batch.

        On a torch device, such as ``cuda``, every call copies the current parameters to the device,
        and copies the gradient back.
        """

    def loss(self, *, device: str | None = None) -> Loss:
        """Return the loss of ``loss_and_gradient`` as a function for ``torch.func``, on a device.

        Raises:
            NotImplementedError: the gradients of this network are only computed one by one.
        """
        raise NotImplementedError(f"{type(self).__name__} computes one gradient at a time")


class ModelConfig(StrictModel, ABC):
    """Base of every model's options in a scenario; ``name`` selects the model.

    Attributes:
        reads: the inputs that it supports; None for any.
        predicts: the targets that it supports; None for any.
        substitute: the model that it replaces, if that is not available; shown with all its
            results.
    """

    reads: ClassVar[Inputs | None] = "images"
    predicts: ClassVar[Kind | None] = "labels"
    substitute: ClassVar[str] = ""

    @abstractmethod
    def build(self, image_shape: ImageShape, classes: int, *, folder: Path) -> Network:
        """Build the network for images of this shape; the folder's ``custom`` has the user's files.

        ``classes`` is 0 if targets are numbers.

        Raises:
            ScenarioError: this model cannot be built for such images, or the user's file is wrong.
        """

    def parameters(self, image_shape: ImageShape, classes: int) -> int | None:
        """Return the network's number of parameters, without torch; None if unknown."""
        return None


def convolution(inputs: int, outputs: int, *, side: int = 3) -> int:
    """Return the parameters of a convolution with biases and filters of ``side`` x ``side``."""
    return (side**2 * inputs + 1) * outputs


def dense(*widths: int) -> int:
    """Return the parameters of dense layers with biases, from one width to the next."""
    return sum((inputs + 1) * outputs for inputs, outputs in pairwise(widths))


def pooled(image_shape: ImageShape, times: int, *, model: str) -> tuple[int, int]:
    """Return height and width after halving (rounding down) ``times`` times.

    Raises:
        ScenarioError: the image is too small.
    """
    height, width = image_shape[1:]
    height, width = height >> times, width >> times
    if not height or not width:
        found = f"{model} on images of {image_shape[1]}x{image_shape[2]} pixels"
        expected = f"at least {1 << times}x{1 << times} pixels, or a model such as mlp"
        raise ScenarioError.at("model", found, expected)
    return height, width


def _order_by_content(images: NDArray[Any], targets: Targets) -> NDArray[np.int64]:
    """Return a shuffled order of images, shape (b,), independent of their current order.

    It sorts hashes of image and target; duplicates are numbered, so that they are spread too.
    """
    numbers: Counter[bytes] = Counter()
    hashes = []
    for image, target in zip(images, targets, strict=True):
        content = blake2b(image.tobytes() + target.tobytes()).digest()
        hashes.append(blake2b(content + numbers[content].to_bytes(8)).digest())
        numbers[content] += 1
    return np.array(sorted(range(len(hashes)), key=hashes.__getitem__), np.int64)
