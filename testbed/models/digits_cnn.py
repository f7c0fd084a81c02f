"""A small convolutional network for the 8x8 digits: 17,258 parameters, trained in seconds.

    convolution 3x3 -> 16, ReLU, max pooling 2x2
    dense -> 64, ReLU
    dense -> classes

Initial weights are normally distributed with mean 0 and variance 2 / (inputs of a unit), truncated
at two standard deviations (He et al., ICCV 2015, arXiv:1502.01852); biases start at 0.
"""

from __future__ import annotations

from math import sqrt
from pathlib import Path
from typing import Literal

from testbed.models.base import ImageShape, ModelConfig, Network, convolution, dense, pooled


class DigitsCnn(ModelConfig):
    """A small convolutional network; 17,258 parameters on 8x8 grey images."""

    name: Literal["digits-cnn"]

    def build(self, image_shape: ImageShape, classes: int, *, folder: Path) -> Network:
        from testbed.models.layers import Convolution, LayeredNetwork, Linear

        channels = image_shape[0]
        height, width = pooled(image_shape, 1, model=self.name)
        features = 16 * height * width
        return LayeredNetwork(
            [
                Convolution("conv1", channels, 16, deviation=sqrt(2 / (9 * channels))),
                Linear("dense1", features, 64, deviation=sqrt(2 / features)),
                Linear("dense2", 64, classes, deviation=sqrt(2 / 64), relu=False),
            ]
        )

    def parameters(self, image_shape: ImageShape, classes: int) -> int:
        height, width = pooled(image_shape, 1, model=self.name)
        return convolution(image_shape[0], 16) + dense(16 * height * width, 64, classes)
