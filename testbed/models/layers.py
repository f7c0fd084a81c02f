"""Layers with a hand-written backward pass, and sequential networks of such layers.

For a mini-batch of ten, building and walking autograd's graph, and copying its results into the
flat vector, takes 5 to 25 % of the time of a gradient. Here each layer computes the gradient of its
two tensors directly into their part of the flat vector. Tests compare it with autograd and with
finite differences.

Activations have the shape (batch, height, width, channels) or (batch, features), also in memory:
PyTorch's ``channels_last``, in which convolutions and pooling are fastest. For the same reason, a
convolution's weights are stored in the flat vector as (output, height, width, input), which is
their shape in the layout.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from testbed.models.base import BoundModel, Images, Loss, Network, Targets
from testbed.models.device_vector import DeviceVector
from testbed.models.scores import Labels, cross_entropy
from testbed.payloads import Vector, zeros
from testbed.payloads.layout import Layout

_aten = torch.ops.aten


class Pair(NamedTuple):
    """A layer's two tensors, or their gradients: views into a flat vector."""

    weight: Tensor
    bias: Tensor


@dataclass(frozen=True)
class Layer(ABC):
    """One layer with a weight and a bias.

    Attributes:
        name: prefix of its tensors' names.
        inputs: number of input channels or features; ``outputs``, of output channels or features.
        deviation: standard deviation of the normal law of the initial weights, truncated at two
            deviations.
        bias: initial value of every bias.
        decay: factor of half the squared norm of the weight, which is added to the loss.
    """

    name: str
    inputs: int
    outputs: int
    deviation: float
    bias: float = 0.0
    decay: float = 0.0

    @property
    @abstractmethod
    def weight_shape(self) -> tuple[int, ...]:
        """Shape of the weight in the layout, output first."""

    @property
    def bias_size(self) -> int:
        """Number of values of the bias."""
        return self.outputs

    @abstractmethod
    def forward(self, at: Pair, x: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Return the layer's output, and the tensors of this pass that ``backward`` needs."""

    @abstractmethod
    def backward(
        self, at: Pair, kept: tuple[Tensor, ...], slope: Tensor, *, into: Pair, first: bool
    ) -> Tensor | None:
        """Overwrite ``into`` with the gradients of weight and bias.

        ``slope`` is the gradient of the loss by the layer's output, ``kept`` the tensors from
        ``forward``. Returns the gradient by the layer's input, None for the first layer.
        """


def convolution_backward(
    slope: Tensor, image: Tensor, at: Pair, *, into: Pair, first: bool, padding: int
) -> Tensor | None:
    """Implement ``Layer.backward`` of a convolution of an image, by its output in ``planes``."""
    by_image, by_weight, by_bias = _aten.convolution_backward.default(
        *(slope, image, planes(at.weight), [len(at.bias)]),
        *([1, 1], [padding, padding], [1, 1], False, [0, 0], 1, [not first, True, True]),
    )
    planes(into.weight).copy_(by_weight)
    into.bias.copy_(by_bias)
    return None if first else cast(Tensor, by_image.permute(0, 2, 3, 1))


@dataclass(frozen=True)
class Convolution(Layer):
    """3x3 convolution that preserves height and width, then 2x2 max pooling, then ReLU.

    ReLU after pooling gives the same result as ReLU before it, on a quarter of the values.
    """

    @property
    def weight_shape(self) -> tuple[int, ...]:
        return (self.outputs, 3, 3, self.inputs)

    def forward(self, at: Pair, x: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        image = planes(x)
        full = functional.conv2d(image, planes(at.weight), at.bias, padding=1)
        highest, where = _aten.max_pool2d_with_indices.default(full, [2, 2], [2, 2])
        out = highest.relu_()
        return out.permute(0, 2, 3, 1), (image, full, where, out)

    def backward(
        self, at: Pair, kept: tuple[Tensor, ...], slope: Tensor, *, into: Pair, first: bool
    ) -> Tensor | None:
        image, full, where, out = kept
        batch, _, height, width = out.shape
        slope = planes(slope.view(batch, height, width, self.outputs))
        slope = _aten.threshold_backward.default(slope, out, 0)
        slope = _aten.max_pool2d_with_indices_backward.grad_input(  # overwrites the pooling's input
            slope, full, [2, 2], [2, 2], [0, 0], [1, 1], False, where, grad_input=full
        )
        return convolution_backward(slope, image, at, into=into, first=first, padding=1)


@dataclass(frozen=True)
class Linear(Layer):
    """x W^T + b, with ReLU unless it is the last layer."""

    relu: bool = True

    @property
    def weight_shape(self) -> tuple[int, ...]:
        return (self.outputs, self.inputs)

    def forward(self, at: Pair, x: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        x = x.reshape(len(x), self.inputs)
        out = torch.addmm(at.bias, x, at.weight.t())
        if self.relu:
            out.relu_()
        return out, (x, out)

    def backward(
        self, at: Pair, kept: tuple[Tensor, ...], slope: Tensor, *, into: Pair, first: bool
    ) -> Tensor | None:
        x, out = kept
        if self.relu:
            slope = _aten.threshold_backward.default(slope.view_as(out), out, 0)
        torch.mm(slope.t(), x, out=into.weight)
        torch.sum(slope, 0, out=into.bias)
        return None if first else slope @ at.weight


class LayeredNetwork(Network):
    """A sequence of layers, the last of which gives the outputs, and an objective."""

    def __init__(self, layers: Sequence[Layer], objective: Objective | None = None) -> None:
        self.layers = tuple(layers)
        self.objective = objective or CrossEntropy()
        names = [f"{layer.name}.{part}" for layer in layers for part in ("weight", "bias")]
        shapes = [shape for layer in layers for shape in (layer.weight_shape, (layer.bias_size,))]
        self.layout = Layout(tuple(names), tuple(shapes))

    def initial(self, rng: np.random.Generator) -> Vector:
        parts: list[NDArray[np.float64]] = []
        for layer in self.layers:
            size = int(np.prod(layer.weight_shape))
            parts.append(layer.deviation * truncated_normal(rng, size))
            parts.append(np.full(layer.bias_size, layer.bias))
        return np.concatenate(parts).astype(np.float32)

    def bind(self, parameters: Vector, *, device: str | None = None) -> BoundModel:
        return _BoundLayers(self, parameters, device)

    def loss(self, *, device: str | None = None) -> Loss:
        def loss(parameters: Tensor, images: Tensor, targets: Tensor) -> Tensor:
            x, rows = images.permute(0, 2, 3, 1), self.cut(parameters)
            penalty = torch.zeros((), device=x.device)
            for layer, at in zip(self.layers, rows, strict=True):
                x, _ = layer.forward(at, x)
                if layer.decay:
                    penalty = penalty + layer.decay / 2 * at.weight.square().sum()
            return self.objective.loss(x, targets) + penalty

        return loss

    def cut(self, flat: Tensor) -> list[Pair]:
        """Return each layer's part of a flat vector; not copied."""
        parts = zip(self.layout.slices(), self.layout.shapes, strict=True)
        views = [flat[part].view(shape) for part, shape in parts]
        return [Pair(*views[i : i + 2]) for i in range(0, len(views), 2)]


class _BoundLayers(BoundModel):
    def __init__(self, network: LayeredNetwork, parameters: Vector, device: str | None) -> None:
        self._objective = network.objective
        self._device = device
        self._gradient = zeros(network.layout.size)
        self._values, self._slopes = (
            DeviceVector.of(vector, device) for vector in (parameters, self._gradient)
        )
        pairs = network.cut(self._values.tensor), network.cut(self._slopes.tensor)
        self._rows = list(zip(network.layers, *pairs, strict=True))
        self._decayed = [(at, into, one.decay) for one, at, into in self._rows if one.decay]

    @torch.inference_mode()
    def loss_and_gradient(self, images: Images, targets: Targets) -> tuple[float, Vector]:
        x = self._begin(images)
        kept = []
        for layer, at, _ in self._rows:
            x, keep = layer.forward(at, x)
            kept.append(keep)
        loss, slope = self._objective.slope(x, torch.tensor(targets, device=self._device))
        for i in range(len(kept) - 1, -1, -1):
            layer, at, into = self._rows[i]
            back = layer.backward(at, kept.pop(), slope, into=into, first=i == 0)
            slope = slope if back is None else back
        for at, into, decay in self._decayed:
            into.weight.add_(at.weight, alpha=decay)
        self._slopes.fetch()
        return loss + (self._penalty() if self._decayed else 0.0), self._gradient

    @torch.inference_mode()
    def scores(self, images: Images) -> NDArray[np.float32]:
        x = self._begin(images)
        for layer, at, _ in self._rows:
            x, _ = layer.forward(at, x)
        return cast("NDArray[np.float32]", x.cpu().numpy())

    def total_loss(self, outputs: NDArray[np.float64], targets: Targets) -> float:
        return self._objective.total(outputs, targets)

    @torch.inference_mode()
    def penalty(self) -> float:
        self._values.send()
        return self._penalty()

    def _begin(self, images: Images) -> Tensor:
        """Move the images and the current parameters to the device; return the images."""
        x = _activations(images)
        if self._device is None:
            return x
        self._values.send()
        return x.to(self._device)

    def _penalty(self) -> float:
        return sum(decay / 2 * at.weight.square().sum().item() for at, _, decay in self._decayed)


def truncated_normal(rng: np.random.Generator, size: int) -> NDArray[np.float64]:
    """Draw from a standard normal law truncated at two standard deviations."""
    values = rng.standard_normal(size)
    while (outside := np.flatnonzero(np.abs(values) > 2)).size:
        values[outside] = rng.standard_normal(outside.size)
    return values


def planes(tensor: Tensor) -> Tensor:
    """View (n, height, width, channels) in PyTorch's order, (n, channels, height, width)."""
    return tensor.permute(0, 3, 1, 2)


def _activations(images: Images) -> Tensor:
    """Copy (b, channels, height, width) to the layers' order, (b, height, width, channels).

    It copies even a single channel: memory of a mapped data set is read-only, and PyTorch warns
    about such memory.
    """
    return torch.from_numpy(np.array(images.transpose(0, 2, 3, 1), order="C"))


class Objective(ABC):
    """Base of all objectives."""

    @abstractmethod
    def total(self, outputs: NDArray[np.float64], targets: Targets) -> float:
        """Return the sum of the costs of some samples; NaN if an output is not finite."""

    @abstractmethod
    def slope(self, outputs: Tensor, targets: Tensor) -> tuple[float, Tensor]:
        """Return the mean cost of a mini-batch, and its gradient by the outputs, in their shape."""

    @abstractmethod
    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the mean cost of a mini-batch, for automatic differentiation."""


@dataclass(frozen=True)
class CrossEntropy(Objective):
    """-log softmax(scores)[label], in nats; scores have the shape (b, classes)."""

    def total(self, outputs: NDArray[np.float64], targets: Targets) -> float:
        return cross_entropy(outputs, cast(Labels, targets))

    def slope(self, outputs: Tensor, targets: Tensor) -> tuple[float, Tensor]:
        logs = torch.log_softmax(outputs, 1)
        own = targets[:, None]
        loss = -logs.gather(1, own).mean().item()
        slope = logs.exp_().scatter_add_(1, own, torch.full_like(own, -1, dtype=logs.dtype))
        return loss, slope.div_(len(targets))

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return functional.cross_entropy(outputs, targets)


@dataclass(frozen=True)
class SquaredError(Objective):
    """max(0, |prediction - number| - margin)^2; predictions have the shape (b,) or (b, 1).

    With a margin it is the squared epsilon-insensitive loss of support vector regression.
    """

    margin: float = 0.0

    def total(self, outputs: NDArray[np.float64], targets: Targets) -> float:
        beyond = np.maximum(np.abs(outputs.reshape(-1) - targets) - self.margin, 0.0)
        return float(beyond @ beyond)

    def slope(self, outputs: Tensor, targets: Tensor) -> tuple[float, Tensor]:
        errors = outputs.view(-1) - targets
        beyond = errors.abs().sub_(self.margin).clamp_(min=0.0)
        loss = beyond.square().mean().item()
        slope = beyond.mul_(errors.sign_()).mul_(2 / len(targets))
        return loss, slope.view_as(outputs)

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        errors = outputs.reshape(-1) - targets
        return (errors.abs() - self.margin).clamp(min=0.0).square().mean()
