"""The convolutional network of the AdaComp paper: 211,690 parameters on MNIST.

C. Hardy, E. Le Merrer, B. Sericola: Distributed deep learning on edge-devices: feasibility via
adaptive compression. IEEE NCA 2017, arXiv:1702.04683, section V.

    convolution 3x3 -> 32, ReLU, max pooling 2x2
    convolution 3x3 -> 32, ReLU, max pooling 2x2
    dense -> 128, ReLU
    dense -> classes

Eight tensors. Initial weights have a normal law of standard deviation 0.1, truncated at two;
biases start at 0.1.

Deviations: the authors' published code has 64 filters in its second convolution (421,642 parameters
in total); this network has the size that the paper states.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from testbed.models.base import ImageShape, ModelConfig, Network, convolution, dense, pooled


class AdaCompCnn(ModelConfig):
    """The convolutional network of the AdaComp paper; 211,690 parameters on 28x28 grey images."""

    name: Literal["adacomp-cnn"]

    def build(self, image_shape: ImageShape, classes: int, *, folder: Path) -> Network:
        from testbed.models.layers import Convolution, LayeredNetwork, Linear

        height, width = pooled(image_shape, 2, model=self.name)
        features = 32 * height * width
        return LayeredNetwork(
            [
                Convolution("conv1", image_shape[0], 32, deviation=0.1, bias=0.1),
                Convolution("conv2", 32, 32, deviation=0.1, bias=0.1),
                Linear("dense1", features, 128, deviation=0.1, bias=0.1),
                Linear("dense2", 128, classes, deviation=0.1, bias=0.1, relu=False),
            ]
        )

    def parameters(self, image_shape: ImageShape, classes: int) -> int:
        height, width = pooled(image_shape, 2, model=self.name)
        convolutions = convolution(image_shape[0], 32) + convolution(32, 32)
        return convolutions + dense(32 * height * width, 128, classes)
