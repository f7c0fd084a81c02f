"""Residual networks for small images: ResNet-8 and ResNet-20.

They have 75,290 and 269,722 parameters on CIFAR-10.

K. He, X. Zhang, S. Ren, J. Sun: Deep residual learning for image recognition. CVPR 2016, section
4.2, with n = 1 and n = 3 blocks per stage, 6 n + 2 layers in total:

    convolution 3x3 -> 16
    n blocks of two convolutions 3x3 -> 16, n -> 32, n -> 64; the latter two stages halve the image
    mean over the pixels, dense -> classes

Batch normalisation follows every convolution, which has no biases; ReLU and shortcuts are as in the
paper, without parameters. Batch normalisation uses the current batch, also in evaluations, on
shuffled test images: running statistics are not parameters, and are not sent.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from testbed.models.base import ImageShape, ModelConfig, Network, dense, pooled

if TYPE_CHECKING:
    from torch import nn


class ResNet(ModelConfig):
    """A residual network; with a depth of 8 it has 75,290 parameters on 32x32 colour images.

    Attributes:
        depth: number of layers with weights.
    """

    name: Literal["resnet"]
    depth: Literal[8, 20] = 8

    def build(self, image_shape: ImageShape, classes: int, *, folder: Path) -> Network:
        from testbed.models.modules import ModuleNetwork

        pooled(image_shape, 3, model=self.name)  # else one image is too small to normalise
        return ModuleNetwork(lambda: self.module(image_shape, classes))

    def module(self, image_shape: ImageShape, classes: int) -> nn.Module:
        """Build the layers, with initial values from torch's generator."""
        from testbed.models.residual import ResidualNetwork

        return ResidualNetwork(image_shape[0], classes, blocks=(self.depth - 2) // 6)

    def parameters(self, image_shape: ImageShape, classes: int) -> int:
        inputs = 16
        total = _normalised(image_shape[0], inputs)
        for width in (16, 32, 64):
            total += _normalised(inputs, width)
            total += ((self.depth - 2) // 3 - 1) * _normalised(width, width)
            inputs = width
        return total + dense(inputs, classes)


def _normalised(inputs: int, outputs: int) -> int:
    """Return the parameters of a 3x3 convolution without biases, and of its normalisation."""
    return (9 * inputs + 2) * outputs
