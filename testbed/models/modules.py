"""Networks based on a ``torch.nn.Module``, with gradients from autograd.

Each bound network has its own module, whose parameters are views into the flat vector.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import functional_call

from testbed.models.base import BoundModel, Images, Loss, Network, Targets
from testbed.models.device_vector import DeviceVector
from testbed.payloads import Vector, zeros
from testbed.payloads.layout import Layout
from testbed.values.samples import NOT_COUNTED

BATCH_NORM = nn.modules.batchnorm._BatchNorm
"""Base class of batch normalisation layers."""

STRUCTURE_SEED = 0
"""Seed with which every node builds the network, so that random buffers are equal."""


class ModuleNetwork(Network):
    """A module that maps images (b, channels, height, width) to scores (b, classes).

    Or tokens, int64 (b, length), to scores (b, length, classes) of the next ones.
    """

    def __init__(self, make: Callable[[], nn.Module], *, tokens: int = 0) -> None:
        """Build the network.

        Args:
            make: creates the module; its initial values come from torch's seeded generator.
            tokens: see the base class.
        """
        self._make = make
        self._buffers: tuple[str, ...] = ()
        self.tokens = tokens
        self.layout, self.local = self._layouts(self._construct(STRUCTURE_SEED))

    def initial(self, rng: np.random.Generator) -> Vector:
        return self._initial(self.layout, rng)

    def initial_local(self, rng: np.random.Generator) -> Vector:
        return self._initial(self.local, rng)

    def _initial(self, layout: Layout, rng: np.random.Generator) -> Vector:
        """Return the initial values of a layout; those of two layouts belong together."""
        if not layout.names:
            return zeros(0)
        module = self._construct(int(rng.integers(2**63)))
        named: dict[str, Tensor] = dict(module.named_buffers())
        named |= module.named_parameters()
        parts = [named[name].detach().reshape(-1) for name in layout.names]
        return cast(Vector, torch.cat(parts).numpy())

    def _layouts(self, module: nn.Module) -> tuple[Layout, Layout]:
        """Return the layouts of what is sent and of what stays at the workers."""
        return layout_of(module, self._buffers), self.local

    def bind(self, parameters: Vector, *, device: str | None = None) -> BoundModel:
        return BoundModule(self._construct(STRUCTURE_SEED), self.layout, parameters, device)

    def loss(self, *, device: str | None = None) -> Loss:
        """See the base class; the values of the module itself are not used."""
        module = self._construct(STRUCTURE_SEED).train().to(device)

        def loss(parameters: Tensor, images: Tensor, targets: Tensor) -> Tensor:
            parts = zip(self.layout.names, self.layout.slices(), self.layout.shapes, strict=True)
            values = {name: parameters[part].view(shape) for name, part, shape in parts}
            inputs = images.long() if images.ndim == 2 else images  # tokens
            outputs = functional_call(module, values, (inputs,))
            return mean_cross_entropy(cast(Tensor, outputs), targets)

        return loss

    def _prepared(self, module: nn.Module) -> nn.Module:
        """Return a new module as it is used here."""
        return without_running_statistics(module)

    def _construct(self, seed: int) -> nn.Module:
        """Create an instance, without changing torch's global generator."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return self._prepared(self._make())


class BoundModule(BoundModel):
    """A module whose parameters and gradients are parts of two flat vectors.

    A forward pass changes a buffer in the layout only until its change is in the gradient. A
    parameter that is not in the layout keeps its initial values.
    """

    def __init__(
        self, module: nn.Module, layout: Layout, parameters: Vector, device: str | None = None
    ) -> None:
        self._gradient = zeros(layout.size)
        self._values, self._slopes = (
            DeviceVector.of(vector, device) for vector in (parameters, self._gradient)
        )
        values, gradients = self._values.tensor, self._slopes.tensor
        self._module = module.to(values.device)  # its buffers
        self.mixes = any(isinstance(part, BATCH_NORM) for part in module.modules())
        parameters_left, self._buffers = dict(module.named_parameters()), list[_Buffer]()
        for name, part, shape in zip(layout.names, layout.slices(), layout.shapes, strict=True):
            value, slope = values[part].view(shape), gradients[part].view(shape)
            parameter = parameters_left.pop(name, None)
            if parameter is None:
                self._buffers.append(_Buffer.bind(module, name, value, slope))
            else:
                parameter.data, parameter.grad = value, slope
        for parameter in parameters_left.values():
            parameter.requires_grad_(False)

    def loss_and_gradient(self, images: Images, targets: Targets) -> tuple[float, Vector]:
        self._module.train()
        self._values.send()
        self._slopes.tensor.zero_()
        before = [one.values.clone() for one in self._buffers]
        loss = self._loss(self._scores(images), self._tensor(targets))
        loss.backward()  # type: ignore[no-untyped-call]  # adds to the parts of self._slopes
        for buffer, old in zip(self._buffers, before, strict=True):
            buffer.change_to_slope(old)
        self._slopes.fetch()
        return loss.item(), self._gradient

    @torch.no_grad()
    def scores(self, images: Images) -> NDArray[np.float32]:
        self._module.eval()
        self._values.send()
        return cast("NDArray[np.float32]", self._scores(images).cpu().numpy())

    def _loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the mean loss of a batch, over the targets that count."""
        return mean_cross_entropy(outputs, targets)

    def _scores(self, images: Images) -> Tensor:
        """Return the module's output.

        The input is a copy, as a mapped data set is read-only; with ``channels_last``, all layers
        take a fifth less time. ``clone`` sets the strides even for a single channel, which
        ``contiguous`` leaves unchanged.
        """
        copy = self._inputs(images)
        if copy.ndim == 4:
            copy = copy.clone(memory_format=torch.channels_last)
        return cast(Tensor, self._module(copy))

    def _inputs(self, images: Images) -> Tensor:
        """Copy images, or tokens as int64, to the module's device."""
        copy = self._tensor(images)
        return copy.long() if copy.ndim == 2 else copy

    def _tensor(self, values: NDArray[Any]) -> Tensor:
        """Copy values to the module's device."""
        return torch.tensor(values, device=self._values.tensor.device)


@dataclass(frozen=True)
class _Buffer:
    """A buffer of a module that is a part of the flat vector.

    Attributes:
        owner: the part of the module that has it.
        name: its name there.
        values: its part of the flat vector.
        slope: that of the gradient.
    """

    owner: nn.Module
    name: str
    values: Tensor
    slope: Tensor

    @classmethod
    def bind(cls, module: nn.Module, path: str, values: Tensor, slope: Tensor) -> _Buffer:
        """Let the buffer of that path be a part of the flat vector."""
        owner, _, name = path.rpartition(".")
        found = cls(module.get_submodule(owner), name, values.data, slope)  # a version of its own
        found.owner._buffers[name] = found.values
        return found

    def change_to_slope(self, old: Tensor) -> None:
        """Write what a step subtracts into the gradient, and restore the old values."""
        new = self.owner._buffers[self.name]
        assert new is not None, "a buffer that is a part of the vector keeps its shape"
        self.slope.copy_(old - new.detach())
        self.values.copy_(old)
        self.owner._buffers[self.name] = self.values


def mean_cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the mean over labels (b,) or, of tokens (b, length), over those that count."""
    return nn.functional.cross_entropy(
        outputs.flatten(0, -2), targets.flatten(), ignore_index=NOT_COUNTED
    )


def layout_of(module: nn.Module, buffers: Sequence[str] = ()) -> Layout:
    """Return the names and shapes of a module's parameters, in its order, and of some buffers."""
    named: dict[str, Tensor] = dict(module.named_parameters())
    untrained = {name for name, parameter in named.items() if not parameter.requires_grad}
    named |= {name: module.get_buffer(name) for name in buffers}
    shapes = tuple(tuple(one.shape) for one in named.values())
    return Layout(tuple(named), shapes, frozenset(untrained.union(buffers)))


def without_running_statistics(module: nn.Module) -> nn.Module:
    """Make normalisation layers use the current batch: running statistics are not sent."""
    for part in module.modules():
        if isinstance(part, nn.modules.batchnorm._NormBase):
            part.track_running_stats = False
            part.running_mean = part.running_var = part.num_batches_tracked = None
    return module
