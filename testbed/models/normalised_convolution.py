"""A convolution with local response normalisation, as in networks of 2012.

A. Krizhevsky, I. Sutskever, G. E. Hinton: ImageNet classification with deep convolutional neural
networks. NIPS 2012, section 3.3. Every value is divided by a power of the values at the same
position in nine neighbouring channels, with its own channel in the middle:

    y[c] = x[c] * base[c]^-0.75,    base[c] = 1 + 0.001 / 9 * sum of x[d]^2 over |d - c| <= 4
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import cast

import torch
from torch import Tensor
from torch.nn import functional

from testbed.models.layers import Layer, Pair, convolution_backward, planes

ALPHA = 0.001 / 9
BETA = 0.75
RADIUS = 4

_aten = torch.ops.aten
_POOLING = ([3, 3], [2, 2], [0, 0], [1, 1], True)
"""3x3, stride 2; the last window may extend past the edge, so that height and width halve."""


@dataclass(frozen=True)
class NormalisedConvolution(Layer):
    """5x5 convolution that preserves height and width, ReLU, then pooling and normalisation.

    Attributes:
        pooled_first: whether pooling comes before normalisation instead of after it.
    """

    pooled_first: bool = True

    @property
    def weight_shape(self) -> tuple[int, ...]:
        return (self.outputs, 5, 5, self.inputs)

    def forward(self, at: Pair, x: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        image = planes(x)
        full = functional.conv2d(image, planes(at.weight), at.bias, padding=2)
        if self.pooled_first:  # ReLU after pooling gives the same on a quarter of the values
            highest, where = _aten.max_pool2d_with_indices.default(full, *_POOLING)
            raw = highest.relu_().permute(0, 2, 3, 1)
            out, power, base = self._normalise(raw)
            return out, (image, full, where, raw, power, base)
        raw = full.relu_().permute(0, 2, 3, 1)
        normal, power, base = self._normalise(raw)
        out, where = _aten.max_pool2d_with_indices.default(planes(normal), *_POOLING)
        return out.permute(0, 2, 3, 1), (image, planes(normal), where, raw, power, base)

    def backward(
        self, at: Pair, kept: tuple[Tensor, ...], slope: Tensor, *, into: Pair, first: bool
    ) -> Tensor | None:
        image, before, where, raw, power, base = kept
        batch, _, height, width = where.shape
        slope = slope.view(batch, height, width, self.outputs)
        if self.pooled_first:
            slope = planes(self._normalise_backward(raw, power, base, slope))
            slope = _aten.threshold_backward.default(slope, planes(raw), 0)
            slope = _unpool(slope, before, where)
        else:
            slope = _unpool(planes(slope), before, where).permute(0, 2, 3, 1)
            slope = planes(self._normalise_backward(raw, power, base, slope))
            slope = _aten.threshold_backward.default(slope, planes(raw), 0)
        return convolution_backward(slope, image, at, into=into, first=first, padding=2)

    def _normalise(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the normalised values, base^-0.75 and the bases; channels are last."""
        base = torch.matmul(x.square(), self._neighbours.to(x.device)).add_(1.0)
        power = _power(base)
        return x * power, power, base

    def _normalise_backward(self, x: Tensor, power: Tensor, base: Tensor, slope: Tensor) -> Tensor:
        """Return the gradient by ``x``: directly, and through the bases of its neighbours."""
        own = slope * power
        through = torch.matmul((own * x).div_(base), self._neighbours.to(x.device))
        return own.sub_(through.mul_(x), alpha=2 * BETA)

    @cached_property
    def _neighbours(self) -> Tensor:
        """0.001 / 9 where two channels are neighbours, shape (channels, channels)."""
        number = torch.arange(self.outputs)
        near = (number[:, None] - number).abs() <= RADIUS
        return near.to(torch.float32) * ALPHA


def _power(base: Tensor) -> Tensor:
    """Return base^-0.75, by two square roots: a power takes ten times as long."""
    root = base.rsqrt()
    return root.sqrt().mul_(root)


def _unpool(slope: Tensor, before: Tensor, where: Tensor) -> Tensor:
    """Return the gradient by the pooling's input, ``before``, which it overwrites."""
    return cast(
        Tensor,
        _aten.max_pool2d_with_indices_backward.grad_input(
            slope, before, *_POOLING, where, grad_input=before
        ),
    )
